"""Whatever long commands meet, nothing half-written is taken for whole, and the next call gives what is wanted."""

import json
import math
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path

import pytest

from bftrainer.files.directories import JOURNAL, LOCK, written_files
from tests.harvest.conftest import TRAIN, table_text
from tests.test_determinism import values_of
from tests.tiny import Done, installed, write_inputs
from tests.waiting import alive, until
from tests.zeus.master.driven import FAKE, PYTHON

SACCT = "JobIDRaw|Start|End|NNodes|NodeList\n1|2026-09-01T08:00:00|2026-09-01T09:00:00|2|n[1-2]\n"
SWEEP = """\
schema = 1
[base]
node_log = "evt.pkl"
tasks = "tasks.toml"
solver = "dp"
[grid]
Tfwd = [{}, 30, 40]
"""
JOB = f"""\
schema = 1
recurrences = 3
batch_sizes = [16, 32, 64]
log_base = "logs"
max_power_w = 250.0
grace_s = 0.3
[job]
dataset = "d"
network = "n"
optimizer = "adam"
target_metric = 0.5
max_epochs = 7
default_bs = 32
default_lr = 0.1
command = {json.dumps([*PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])}
"""
VARIANTS = ("10", "20")
KILLS, FAULTS = ("main", "group", "self"), ("full", "read-only", "broken")
KINDS = ("kill", "kill", "fault", "size")
# Jobs that begin within one second are numbered; logs and checkpoints of a task by its starts and its work.
MOMENT = re.compile(r"\+20\d{12}(\+\d+)?| --(resume|force)|(?<=/)\d{4}-\d+(?=\.log)|(?<=/save-)\d+")
INSIDE = Path(__file__).parent / "inside"
NEVER = 10**9
_numbers = count()


@dataclass(frozen=True)
class Trouble:
    """What a command meets, and at which event.

    `what` is "main", "group" or "self": who is killed; or "full", "read-only" or "broken": how calls fail from then on.
    """

    what: str = "main"
    at: int = NEVER
    file_bytes: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a command ended, and how many events it had."""

    done: Done
    events: int


NO_TROUBLE = Trouble(at=0)


@dataclass(frozen=True)
class Command:
    """A command whose results, the first of which readers look for, depend on {v}; and how it is resumed, if it can."""

    words: str
    results: tuple[str, ...] = ()
    resume: str = ""
    live: bool = False  # so that its books depend on the clock

    def typed(self, variant: str) -> list[str]:
        """The command line of a variant."""
        return ["bftrainer", *self.words.format(v=variant).split()]


_OFTEN = "--checkpoint-every 0.000001s --output-dir out --force"
_SAMPLE = "replay -Tfwd {v} --no-baseline " + _OFTEN
_RESUME = "replay --resume out"
_ASSESS = "assess evt.pkl -bdfn tasks.toml --price-node-hour {v} -o out "
_HARVEST = "harvest run live.toml --max-nodes 1 -Tfwd {v} -o h"
COMMANDS = {
    "replay": Command("replay -ndmap evt.pkl -bdfn tasks.toml --solver dp -Tfwd {v} " + _OFTEN, ("out",), _RESUME),
    "replay, cbc": Command(f"{_SAMPLE} --max-events 40", ("out",), _RESUME),
    "replay, capped": Command(f"{_SAMPLE} --sample tuned --power-cap 15kW --max-events 20", ("out",), _RESUME),
    "sweep": Command(
        "sweep sweep-{v}.toml -o out --workers 2 --force", ("out",), "sweep sweep-{v}.toml -o out --resume"
    ),
    "import": Command(
        "import sacct.txt --tz UTC --start 2026-09-01 --end 2026-09-{v} -o idle.csv --force --window asked",
        ("idle.csv", "idle.json"),
    ),
    "convert": Command("convert tasks-{v}.toml made-Jbnd.pkl --force", ("made-Jbnd.pkl", "made-JNPs.pkl")),
    "assess": Command(_ASSESS + "--force", ("out",), _ASSESS + "--resume"),
    "harvest": Command(_HARVEST, resume=_HARVEST, live=True),
    "master": Command("master run job.toml --seed {v} --quiet", (), "master run --resume {logs} --quiet"),
}


def _family(mark: str) -> list[int]:
    """Processes that a command has started, whoever their parent is now."""
    family = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                family.append(int(entry.name))
    return [pid for pid in family if alive(pid)]


def run(words: list[str], cwd: Path, trouble: Trouble, env: dict[str, str]) -> Ended:
    """Run a command, which may meet trouble, until nothing of it is left."""
    mark = f"{os.getpid()}-{next(_numbers)}"
    path = os.pathsep.join([str(INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])])
    limit = [] if trouble.file_bytes is None else ["prlimit", f"--fsize={trouble.file_bytes}"]
    with tempfile.NamedTemporaryFile() as counter:
        inside = {"PYTHONPATH": path, "CHAOS_COUNT": counter.name, "CHAOS_AT": str(trouble.at), "CHAOS_ID": mark}
        inside |= {"CHAOS_WHAT": trouble.what, "CHAOS_MAIN": ""}
        process = subprocess.Popen(
            [*limit, installed(words[0]), *words[1:]],
            cwd=cwd,
            env=os.environ | inside | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # which has room for all that these commands say
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        process.wait()
        until(lambda: not _family(f"CHAOS_ID={mark}"))
        out, err = process.communicate()
        return Ended(Done(process.returncode, out, err), os.stat(counter.name).st_size)


def facts(folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> dict[str, str]:
    """Paths below a folder, hidden ones too, and what is in the files, but for place, moment and what took time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if wanted(name := MOMENT.sub("", str(path.relative_to(folder)))):
            has_values = path.is_file() and path.name not in ("lock", "brief.pdf")  # of whoever had it last; packed
            found[name] = MOMENT.sub("", values_of(path).replace(str(folder), "")) if has_values else ""
    return found


def live_facts(folder: Path) -> dict[str, str]:
    """Paths below a folder with a harvest, whether its books are in order, and what its tasks did."""
    books = run(["bftrainer", "audit", "h"], folder, NO_TROUBLE, {}).done
    summary = json.loads((folder / "h" / "summary.json").read_text())
    figures = {key: str(summary[key]) for key in ("tasks_completed", "partial", "end_reason")}
    return dict.fromkeys(facts(folder), "") | figures | {"audit": f"{books.status} {books.err}"}


@contextmanager
def world() -> Iterator[Path]:
    """A folder with what commands read; keys of its own beside it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(Path(place, "state")))
        here = Path(place, "here")
        here.mkdir()
        write_inputs(here)
        (here / "sacct.txt").write_text(SACCT)
        (here / "job.toml").write_text(JOB)
        (here / "train.py").write_text(TRAIN)
        (here / "live.toml").write_text("schema = 1\n" + table_text("a", 10) + table_text("b", 20))
        for number, variant in enumerate(VARIANTS):
            (here / f"sweep-{variant}.toml").write_text(SWEEP.format(variant))
            dated = (here / "tasks.toml").read_text().replace("min_nodes", f"submit = 2026-01-0{number + 1}\nmin_nodes")
            (here / f"tasks-{variant}.toml").write_text(dated)
        yield here


@dataclass(frozen=True)
class Reference:
    """What a command leaves that meets no trouble, its number of events, and the bytes that it wrote."""

    facts: dict[str, str]
    events: int
    bytes: int


@cache
def reference(name: str, variant: str) -> Reference:
    """What a command leaves that meets no trouble."""
    with world() as here:
        ended = run(COMMANDS[name].typed(variant), here, Trouble(), {})
        assert ended.done.status == 0, ended
        written = sum(path.stat().st_size for path in here.rglob("*") if path.is_file())
        return Reference((live_facts if COMMANDS[name].live else facts)(here), ended.events, written)


def draw_trouble(rng: random.Random, kind: str, usual: Reference) -> Trouble:
    """A trouble of a kind, at some event or size of file."""
    at = rng.randint(1, max(usual.events, 1))
    match kind:
        case "kill":
            return Trouble(rng.choice(KILLS), at)
        case "fault":
            return Trouble(rng.choice(FAULTS), at)
        case _:
            return Trouble(at=0, file_bytes=int(math.exp(rng.uniform(0, math.log(usual.bytes + 1000)))))


def is_result(command: Command, name: str) -> bool:
    """Whether a path is that of results of a command; what it is writing to is not, nor a journal that goes last."""
    unfinished = {LOCK, ".new", f".new{LOCK}", JOURNAL} & {*name.split("/")}
    return any(f"{name}/".startswith(f"{root}/") for root in command.results) and not unfinished


def check_end(ended: Ended, kind: str) -> None:
    """No traceback ever; what fails for want of a place fails in one line."""
    assert "Traceback" not in ended.done.err + ended.done.out
    if ended.done.status > 0 and kind != "kill":
        assert ended.done.status in (1, 2)
        errors = [line for line in ended.done.err.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1 or "failed: " in ended.done.err


def check_results(here: Path, command: Command, allowed: list[dict[str, str]]) -> None:
    """What is there is whole, or readers are told that it is not."""
    place = here / (command.results or ("none",))[0]
    if not place.exists():
        return
    if place.is_dir():
        listed = written_files(place)
        if not all((place / name).is_file() for name in listed):
            assert "sweep" in command.words
            return
        if not listed:
            assert not (place / "summary.json").exists()
            return
    assert facts(here, partial(is_result, command)) in allowed, "half-written, and taken for whole"


def go_on(here: Path, name: str, rng: random.Random, variant: str) -> None:
    """Resume the command, or call it again: it gives what it gives without trouble, and nothing else is left."""
    command, wanted, ended = COMMANDS[name], reference(name, variant), None
    others = (here / "out/sweep.parquet").exists()  # of another sweep, whose runs would stay
    others |= any(str(run.relative_to(here)) not in wanted.facts for run in here.glob("out/runs/[!.]*"))
    # What has no place of its own, and was begun, would get another one.
    if command.resume and not others and (rng.random() < 0.6 or not command.results):
        logs = next((here / "logs").iterdir(), None) if (here / "logs").exists() else None
        ended = run(["bftrainer", *command.resume.format(v=variant, logs=logs).split()], here, NO_TROUBLE, {})
    if ended is None or ended.done.status == 2:
        ended = run(command.typed(variant), here, NO_TROUBLE, {})
    assert ended.done.status == 0, ended
    left = (live_facts if command.live else facts)(here)
    differ = {path for path in {*left, *wanted.facts} if left.get(path) != wanted.facts.get(path)}
    assert not differ, sorted(differ)


def try_trouble(name: str, seed: int) -> None:
    """Run a command into a trouble drawn from the seed; look at what it leaves, and call it again."""
    rng = random.Random(f"{name} {seed}")
    command, kind = COMMANDS[name], rng.choice(KINDS)
    old, new = rng.sample(VARIANTS, 2)
    env = {"BFTRAINER_CORE": rng.choice("01")}
    with world() as here:
        usual = reference(name, new)
        variants = [new]
        if rng.random() < 0.5 and command.results:
            assert run(command.typed(old), here, NO_TROUBLE, env).done.status == 0
            variants.append(old)
        trouble = draw_trouble(rng, kind, usual)
        ended = run(command.typed(new), here, trouble, env)
        try:
            check_end(ended, kind)
            allowed = [reference(name, variant).facts for variant in variants]
            results = [{path: what for path, what in left.items() if is_result(command, path)} for left in allowed]
            check_results(here, command, results)
            go_on(here, name, rng, new)
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}, {env}: {trouble}: {error}; {ended}") from error


@pytest.mark.slow
@pytest.mark.timeout(1800)  # which waiting within has limits for
@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("BFTRAINER_CHAOS_SEEDS", "5"))))
@pytest.mark.parametrize("name", COMMANDS)
def test_trials(name, seed):
    """Killed, without room, or with files that cannot be written."""
    try_trouble(name, seed)


@pytest.mark.long
@pytest.mark.no_cover
@pytest.mark.parametrize(("name", "seed"), [("import", 8), ("replay", 1), ("replay", 3), ("replay, capped", 1)])
def test_a_trial(name, seed):
    """Some that take little: killed, an import of two files that belong together, and replays that go on."""
    try_trouble(name, seed)
