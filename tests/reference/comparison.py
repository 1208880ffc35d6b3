"""Where a replay of the product differs from the reference: whole numbers exactly, floats but for rounding."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bftrainer.model import NodeLog
from bftrainer.runs import RunResult, run_replay
from tests.reference.random_worlds import World
from tests.reference.replayer import Account, Replay
from tests.reference.rules import offer_rows
from tests.reference.tuning import Group

ROUNDING = 1e-9  # relative
SMALLEST = 1e-3  # what is smaller is compared as if it were this large
WORKS = {"useful": "work_done", "rescaling": "rescale_booked", "preemption": "preemption_cost", "saving": "saving_cost"}
WORKS["given_back"] = "give_back_booked"
LEDGER = ("useful", "rescaling", "preemption", "saving", "given_back", "below_best", "not_offered")
FREE = ("capped", "declined", "admission", "demand")


def play_product(world: World, folder: Path) -> RunResult:
    """Replay a world by the product's public interface."""
    return run_replay(world.log, **world.options(folder))


def play_reference(world: World, result: RunResult) -> Replay:
    """Replay a world by the reference, which follows the product where the rules leave a choice."""
    decisions = result.recording.decisions
    advice = [(each.after, each.power_limits_w) for each in decisions if each.power_limits_w is not None]
    return Replay(world.log, world.tasks, world.rules, world.measured, advice).run()


def compare(world: World, result: RunResult, reference: Replay) -> list[str]:
    """Differences, one line each."""
    recording, is_metered = result.recording, result.metered is not None
    differences = [
        *compare_values("end_s", recording.end_s, reference.now_s),
        *compare_rows("event", recording.events, reference.events),
        *compare_rows("decision", recording.decisions, [shown(each, reference) for each in reference.decisions]),
        *compare_moves(recording.allocation, reference),
        *compare_ledger(world.log, result.summary(), reference),
    ]
    for task, account in zip(recording.tasks, reference.accounts, strict=True):
        differences += compare_task(task, account)
    if is_metered:
        attempts = [tuple(getattr(each, name) for name in each.__slots__) for each in result.attempts]
        differences += compare_values("attempts", attempts, reference.attempts)
        energy_j = sum(account.totals["energy_j"] for account in reference.accounts)
        differences += compare_values("energy_j", result.summary()["energy_j"], energy_j)
        differences += compare_values("idle_energy_j", result.summary()["idle_energy_j"], reference.idle_energy_j)
    return differences


def shown(decision: Mapping[str, Any], reference: Replay) -> dict[str, Any]:
    """A decision as the product records it: settings of tasks where any is tuned, the cap where there is one."""
    hidden = set() if reference.groups else {"batch_sizes", "power_limits_w", "drawn_w"}
    hidden |= set() if reference.rules.power_cap else {"cap_w"}
    return {name: None if name in hidden else value for name, value in decision.items()}


def compare_rows(what: str, rows: Iterable[Any], expected: list[dict[str, Any]]) -> Iterator[str]:
    """Compare a table row by row."""
    rows = list(rows)
    yield from compare_values(f"number of {what}s", len(rows), len(expected))
    for number, (row, wanted) in enumerate(zip(rows, expected, strict=False)):
        for name, value in wanted.items():
            yield from compare_values(f"{what} {number} {name}", getattr(row, name), value)


def compare_moves(allocation: Iterable[Any], reference: Replay) -> Iterator[str]:
    """Compare which node goes to which task, in order of time; the order among the nodes of an instant is free."""
    moves = [(each.time_s, int(node), each.task) for each in allocation for node in each.nodes]
    both = [sorted(some, key=lambda move: move[:2]) for some in (moves, reference.moves)]
    yield from compare_values("number of moves", len(moves), len(reference.moves))
    for number, pair in enumerate(zip(*both, strict=False)):
        yield from compare_values(f"move {number}", *pair)


def compare_task(task: Any, account: Account) -> Iterator[str]:
    """Compare what became of a task."""
    name, totals = task.spec.name, account.totals
    # Sums of what was done and lost carry rounding of the size of all that was booked.
    size = max(1.0, totals["gross"])
    expected = {"started_s": account.started_s, "completed_s": account.completed_s}
    for figure, value in expected.items():
        yield from compare_values(f"task {name} {figure}", getattr(task, figure), value)
    for figure in ("work_done", "preemption_cost", "saving_cost", "node_s"):
        yield from compare_values(f"task {name} {figure}", getattr(task, figure), totals[figure], size)
    for figure, booked in (("rescale_cost", "rescale_booked"), ("give_back_cost", "give_back_booked")):
        yield from compare_values(f"task {name} {figure}", getattr(task, figure), totals[booked], size)
    for figure, counted in (("rescales", "rescales"), ("preemptions", "preempted"), ("give_backs", "give_backs")):
        yield from compare_values(f"task {name} {figure}", getattr(task, figure) or 0, int(totals[counted]))
    total = account.earlier + (0.0 if account.stopped else account.mode.work)
    yield from compare_values(f"task {name} work_total", task.work_total, total)
    if task.tuned is not None:
        run = account.mode.run
        expected = {
            "energy_j": totals["energy_j"],
            "train_s": totals["train_s"],
            "attempts": account.attempts,
            "batch_size": run.batch_size if run else None,
            "power_limit_w": account.mode.limit_w,
            "reached": account.completed_s is not None,
        }
        for figure, value in expected.items():
            yield from compare_values(f"task {name} {figure}", getattr(task.tuned, figure), value)


def compare_ledger(log: NodeLog, summary: Mapping[str, Any], reference: Replay) -> Iterator[str]:
    """Compare the parts of the ledger, as node-seconds."""
    theirs, mine = summary["ledger"], make_ledger(log, reference)
    whole = theirs["idle_node_s"]
    yield from compare_values("ledger idle_node_s", whole, mine["idle_node_s"])
    free = sum(theirs[name] or 0.0 for name in FREE)
    for name, share in {**{name: theirs.get(name) or 0.0 for name in LEDGER}, "free": free}.items():
        yield from compare_values(f"ledger {name}", share * whole, mine[name], max(1.0, whole))


def make_ledger(log: NodeLog, reference: Replay) -> dict[str, float]:
    """Node-seconds of the window, by where they went: the ledger of metrics.md, from the books of the reference."""
    parts: dict[str, float] = defaultdict(float)
    for account in reference.accounts:
        counts, totals = range(account.task.min_nodes, account.task.max_nodes + 1), account.totals
        best = max(account.mode.rates[count] / count for count in counts)
        works = [totals[name] / best if best else 0.0 for name in WORKS.values()]
        for name, node_s in zip(WORKS, works, strict=True):
            parts[name] += node_s
        parts["below_best"] += totals["node_s"] - sum(works)
    changes = [(time_s, len(row.joined) - len(row.left)) for time_s, row in offer_rows(log, 0.0).items()]
    whole = sum(change * max(0.0, reference.now_s - time_s) for time_s, change in changes)
    parts["not_offered"] = whole - reference.idle_node_s
    parts["free"] = reference.idle_node_s - sum(account.totals["node_s"] for account in reference.accounts)
    return {"idle_node_s": whole, **parts}


def compare_values(where: str, product: Any, reference: Any, size: float = SMALLEST) -> Iterator[str]:
    """A line if two values differ; floats may by a share of their size, or of the size given."""
    if not is_close(product, reference, size):
        yield f"{where}: product {product!r}, reference {reference!r}"


def is_close(one: Any, other: Any, size: float) -> bool:
    """Whether two values are equal but for rounding, item by item."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(is_close(*pair, size) for pair in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, (int, float)) and not isinstance(other, bool):
        return one == other or abs(one - other) <= ROUNDING * max(size, abs(one), abs(other))
    return type(one) is type(other) and bool(one == other)


def describe(reference: Replay) -> dict[str, int]:
    """What happened in a replay, for counting: so that worlds can be seen to have all of it."""
    accounts, groups = reference.accounts, reference.groups.values()
    rows_s = {event["time_s"] for event in reference.events if event["left"]}
    happened = {
        "completions": sum(account.completed_s is not None for account in accounts),
        "completions as nodes leave": sum(account.completed_s in rows_s for account in accounts),
        "rescales": sum(account.totals["rescales"] for account in accounts),
        "preemptions": sum(account.totals["preempted"] for account in accounts),
        "nodes given back": sum(account.totals["give_backs"] for account in accounts),
        "hits of tasks that save": sum(account.clock.hits for account in accounts if account.clock),
        "ended runs": len(reference.attempts),
        "runs short of their target": sum(not attempt[-1] for attempt in reference.attempts),
        "groups that drew by Thompson": sum(map(has_drawn, groups)),
        "groups given up": sum(group.failed for group in groups),
        "ties under a cap": reference.ties,
    }
    return {name: int(number) for name, number in happened.items()}


def has_drawn(group: Group) -> bool:
    """Whether a group of several survivors has run one of them more often than each must be: by Thompson sampling."""
    arms = group.policy.arms or []
    return len(arms) > 1 and sum(len(group.policy.rewards(arm)) for arm in arms) > 2 * len(arms)
