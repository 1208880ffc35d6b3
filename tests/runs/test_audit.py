"""The audit of finished runs: nothing is wrong in what replays write, and each planted error is found."""

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InputError, OutputError
from bftrainer.nodelogs import write_node_log
from bftrainer.runs import run_replay, write_run
from bftrainer.runs.audit import audit
from bftrainer.tasksets import write_task_set
from tests.examples import examples
from tests.replay.support import linear_task
from tests.replayed import change_cell, change_summary, other, plain_run, saving_run, tuned_run
from tests.worlds import World, pool, saving_worlds, worlds

Rows = list[dict[str, Any]]
Summary = dict[str, Any]
KINDS: dict[str, Callable[[Path], Path]] = {
    "dp": lambda folder: plain_run(folder, baseline=True),
    "cbc": lambda folder: plain_run(folder, solver="cbc"),
    "equal-share": lambda folder: plain_run(folder, solver="equal-share"),
    "saving": saving_run,
    "tuned": tuned_run,  # under a cap
    "learned": lambda folder: plain_run(folder, scaling="learned"),
    "nodes": lambda folder: plain_run(folder, decide_on="nodes"),
    "published": lambda folder: plain_run(folder, compat="published"),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run of each kind."""
    return {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wrong_in_a_run(originals, kind):
    """Each kind of run is clean, and something was looked at."""
    findings = audit(originals[kind])
    assert findings.wrong == []
    assert findings.checked > 500


Plant = Callable[[Path], None]


def edit_rows(name: str, edit: Callable[[Rows], Any]) -> Plant:
    """Edit the rows of a table; times are whole nanoseconds."""

    def plant(run: Path) -> None:
        path = run / f"{name}.parquet"
        table = pq.read_table(path)
        kinds = [(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in table.schema]
        plain = table.cast(pa.schema(kinds))
        rows = plain.to_pylist()
        edit(rows)
        pq.write_table(pa.Table.from_pylist(rows, plain.schema).cast(table.schema), path)

    return plant


def edit_summary(edit: Callable[[Summary], Any]) -> Plant:
    """Edit the summary."""

    def plant(run: Path) -> None:
        summary = json.loads((run / "summary.json").read_text())
        edit(summary)
        (run / "summary.json").write_text(json.dumps(summary))

    return plant


def edit_steps(edit: Callable[[list[list[str]]], Any]) -> Plant:
    """Edit the cells of the step log."""

    def plant(run: Path) -> None:
        rows = [line.split(",") for line in (run / "step-logs.csv").read_text().splitlines()]
        edit(rows)
        (run / "step-logs.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))

    return plant


def cell(name: str, column: str, place: int, edit: Callable[[Any], Any]) -> Plant:
    """Change a cell of a table."""
    return edit_rows(name, lambda rows: rows[place].update({column: edit(rows[place][column])}))


def shift(name: str, column: str, by: float) -> Plant:
    """Move some of a column's figure from the second row to the first: their sum stays."""
    return edit_rows(
        name, lambda rows: [row.update({column: row[column] + by * (1 - 2 * n)}) for n, row in enumerate(rows[:2])]
    )


def figure(key: str, by: float) -> Plant:
    """Change a figure of the summary."""
    return edit_summary(lambda summary: summary.update({key: summary[key] + by}))


def swap_nodes(rows: Rows) -> None:
    """Let a task that gets a node swap it for one that another task has."""
    owners: dict[str, str] = {}
    for place, row in enumerate(rows):
        other = next((node for node, task in owners.items() if row["task"] and task not in (None, row["task"])), None)
        owners[row["node"]] = row["task"]
        if other is not None:
            swapped = [(row["node"], None), (other, None), (other, row["task"]), (row["node"], owners[other])]
            rows[place + 1 : place + 1] = [row | {"node": node, "task": task} for node, task in swapped]
            return


def call_optimal(run: Path) -> None:
    """Say of heuristic decisions that they were proven to be optimal."""
    said = {"held": "optimal", "stop_reason": "optimal", "gap": 0.0}
    edit_rows("decisions", lambda rows: [row.update(said | {"bound": row["objective"]}) for row in rows])(run)
    counts = {"decisions_incumbent": 0, "gap_max": 0.0}
    edit_summary(lambda summary: summary.update(counts | {"decisions_optimal": summary["decisions"]}))(run)


def lower_bound(run: Path) -> None:
    """Lower the bound of a decision, called unproven, with the counts that go with it."""
    said = {"held": "incumbent", "stop_reason": "time_limit"}
    edit_rows("decisions", lambda rows: rows[2].update(said | {"bound": 0.9 * rows[2]["objective"]}))(run)
    figure("decisions_optimal", -1)(run)
    figure("decisions_incumbent", 1)(run)


def shift_step(rows: list[list[str]]) -> None:
    """Move work from an event to the next one: the sum stays."""
    for row, by in ((rows[4], 5.0), (rows[5], -5.0)):
        row[1] = str(float(row[1]) + by)


def move_ledger(summary: Summary) -> None:
    """Add 0.02 to a part of the ledger, and take it from another one."""
    summary["ledger"]["useful"] += 0.02
    summary["ledger"]["demand"] -= 0.02


WORSE = cell("decisions", "after", 3, lambda after: [after[0] - 1, *after[1:]])

PLANTED = [
    ("dp", WORSE),  # a decision worse by one node
    ("published", WORSE),  # the same by the published rules
    ("saving", WORSE),  # the same for tasks that save
    ("dp", edit_rows("allocation", lambda rows: rows.pop(4))),  # a move dropped
    ("nodes", edit_rows("allocation", lambda rows: rows.insert(5, dict(rows[4])))),  # a move duplicated
    ("dp", edit_rows("allocation", swap_nodes)),  # two tasks with each other's node
    ("dp", edit_rows("decisions", lambda rows: rows.insert(4, dict(rows[3])))),  # a decision doubled
    ("learned", edit_rows("decisions", lambda rows: rows.pop(3))),  # a decision dropped
    ("nodes", edit_steps(shift_step)),  # work booked an event early
    ("cbc", shift("tasks", "work_done", 0.01)),  # some work of one task is another's
    ("tuned", shift("tasks", "energy_j", 100.0)),  # energy of one task is another's
    ("dp", edit_summary(move_ledger)),  # a part of the ledger 0.02 more, another one less
    ("equal-share", call_optimal),  # a decision called optimal that is not
    ("dp", lower_bound),  # a bound below what is possible
    ("dp", edit_summary(lambda summary: summary.pop("ledger"))),  # no ledger
    ("dp", edit_summary(lambda summary: summary["settings"].pop("max_tasks"))),  # a setting left out
]


def copy_of(original: Path) -> Path:
    """A copy beside it, for inputs that are named relatively."""
    run = original.with_name("changed")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(original, run)
    return run


@pytest.mark.parametrize(("kind", "plant"), PLANTED)
def test_planted_errors_are_found(originals, kind, plant):
    """Each is found, and told in one line that names the file."""
    run = copy_of(originals[kind])
    plant(run)
    assert any((run / name.name).read_bytes() != name.read_bytes() for name in originals[kind].iterdir())
    wrong = audit(run).wrong
    assert wrong
    assert all(line.split()[0].endswith((".parquet", ".csv", ".json")) and "\n" not in line for line in wrong)


def test_a_table_of_another_run_is_found(originals):
    """A run of plain tasks has no attempts."""
    run = copy_of(originals["dp"])
    shutil.copy(originals["tuned"] / "attempts.parquet", run)
    assert "attempts.parquet: missing, or not of a run of these tasks" in audit(run).wrong


@pytest.mark.parametrize(
    ("column", "edit"), [("after", lambda _: None), ("after", lambda counts: counts[1:]), ("held", lambda _: None)]
)
def test_a_damaged_decision_is_refused_by_its_row(originals, column, edit):
    """A null, or lists that do not fit together."""
    run = copy_of(originals["dp"])
    cell("decisions", column, 2, edit)(run)
    with pytest.raises(OutputError, match=r"decisions\.parquet row 2: Expected no null, lists of one length\."):
        audit(run)


# Times by the clock, sizes of models, and settings that say how decisions are found, but not what they are worth.
NOT_CHECKED = {
    *("solve_s", "model_rows", "model_columns", "command", "engine", "load_s", "replay_s", "baseline_s"),
    *("settings.time_limit_s", "settings.effort", "settings.threads", "settings.prune", "settings.mip_gap"),
    *("settings.fallback", "settings.strict_published", "settings.baseline", "settings.power_options"),
    "settings.solver",  # one that is not registered counts as code of the user's
}


def is_found(run: Path, planted: Callable[[Path], None]) -> bool:
    """Whether the audit finds what is planted into a copy of a run, or refuses it."""
    changed = copy_of(run)
    planted(changed)
    try:
        return audit(changed).wrong != []
    except (InputError, LookupError, TypeError, ValueError):
        return True


@pytest.mark.parametrize("kind", ["dp", "saving", "tuned", "learned"])
def test_every_column_is_checked(originals, kind):
    """A changed value in any column of any table is found."""
    missed = []
    for path in sorted(originals[kind].glob("*.parquet")):
        for column in pq.read_schema(path).names:
            if not is_found(originals[kind], lambda run: change_cell(run / path.name, column, other)):  # noqa: B023
                missed.append(column)
    assert set(missed) <= NOT_CHECKED
    for place, column in enumerate((originals[kind] / "step-logs.csv").read_text().splitlines()[0].split(",")):

        def plant(rows: list[list[str]]) -> None:
            rows[6][place] = "1970-01-01T00:00:01.5Z" if not place else str(int(float(rows[6][place])) + 1)  # noqa: B023

        assert is_found(originals[kind], edit_steps(plant)), column


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dp", "tuned"])
def test_every_figure_is_checked(originals, kind):
    """A changed figure of the summary is found, or among those that the audit names as not computed again."""
    summary = json.loads((originals[kind] / "summary.json").read_text())
    nested = ("settings", "below_large_idle", "ledger", "decided_by", "batch_sizes")
    keys = [(key,) for key in summary if key not in nested]
    keys += [(top, key) for top in nested for key in summary.get(top, ())]
    missed = [".".join(key) for key in keys if not is_found(originals[kind], lambda run: change_summary(run, *key))]  # noqa: B023
    assert set(missed) - NOT_CHECKED <= {"versions", "inputs", "wall_s"}


OPTIONS = st.fixed_dictionaries(
    {
        "initial": st.sampled_from(["solve", "empty", "random"]),
        "startup_cost": st.sampled_from(["none", "full"]),
        "objective": st.sampled_from(["as-given", "throughput", "deadline"]),
        "solver": st.sampled_from(["dp", "dp", "equal-share"]),
        "forward_time_s": st.sampled_from([1.0, 60.0, 600.0]),
        "max_events": st.none() | st.integers(1, 12),
        "scaling": st.sampled_from([None, None, "learned"]),
        "compat": st.sampled_from(["none", "none", "published"]),
        "baseline": st.booleans(),
    }
)


def check_any_replay(world: World, options: dict[str, Any]) -> None:
    """Nothing is wrong in a replay of a world."""
    decide_on = "nodes" if options["compat"] == "published" else world.decide_on
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"node_log": folder / "idle.parquet", "tasks": folder / "tasks.toml"}
        write_node_log(files["node_log"], world.log)
        write_task_set(files["tasks"], world.tasks)
        (folder / "run").mkdir()
        write_run(run_replay(**files, **options, decide_on=decide_on, max_tasks=world.max_tasks), folder / "run")
        assert audit(folder / "run").wrong == []


@examples(20)
@given(worlds() | saving_worlds(), OPTIONS)
def test_any_replay_is_clean(world, options):
    """Random logs, tasks and options leave nothing to find."""
    check_any_replay(world, options)


def test_work_that_is_done_as_a_run_is_cut():
    """The work is done at 1 s, when the node would leave: `--max-events 1` ends the run before that."""
    task = linear_task(rate=1.0, most=1, work=1.0, shrink_cost_s=1.0)
    world = World(pool(600, (0, 1), (1, 0)), (task,), max_tasks=1, decide_on="nodes")
    options = {"initial": "solve", "solver": "dp", "max_events": 1, "compat": "none", "baseline": False}
    check_any_replay(world, options)
