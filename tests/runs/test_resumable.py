"""Runs that are killed and resumed: the same results as of those that are not, after whichever decision."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import OutputError, RunFailedError, SolverError
from bftrainer.files.directories import JOURNAL, ResultDirectory
from bftrainer.files.opening import SAMPLE_TASKS, SAMPLE_TUNED_TASKS, sample_path
from bftrainer.replay.decision_journal import Beginning, DecisionJournal
from bftrainer.runs import ReplayConfig, RunResult, load_inputs, run_replay
from bftrainer.runs.run import find_unfinished, keep_decisions
from bftrainer.tasksets import read_task_set
from tests.scripted import Scripted
from tests.test_determinism import bare

TUNED = sample_path(SAMPLE_TUNED_TASKS)
SAVING = tuple(
    replace(task, checkpoint_s=20.0, restart_s=40.0) for task in read_task_set(sample_path(SAMPLE_TASKS)).tasks
)
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"solver": "dp"},
    "saving": {"solver": "dp", "tasks": SAVING},
    "backend": {"solver": "cbc"},
    "given back": {"solver": "dp", "tasks": SAVING, "give_way": "chosen", "notice_s": 120.0},
    "rows alone": {"solver": "dp", "decide_on": "nodes"},
    "random first": {"solver": "dp", "initial": "random"},
    "constraints": {"solver": "highs", "objective": "fair-share", "max_events": 12},
    "learning": {"solver": "dp", "scaling": "learned"},
    "tuned": {"solver": "dp", "tasks": TUNED},
    "tuned, capped": {"solver": "dp", "tasks": TUNED, "power_cap": 15_000.0, "power_options": "pareto"},
}
CLOCK = ["solve_s", "backend_s"]
CONFIGS |= {f"tuned by {name}": CONFIGS["tuned"] | {"policy": name} for name in ("gts", "grid", "oracle")}


def plain(value: Any) -> Any:
    """An array as a list, and a time as a text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def columns_of(result: RunResult) -> dict[str, Any]:
    """Tables and summary, without wall-clock times."""
    names = ["tasks", "decisions", "allocation", *["power", "attempts"][: 2 * bool(result.metered)]]
    frames = {name: result.frame(name) for name in [*names, *["beliefs"][: bool(result.learned)]]}
    return {"summary": bare(result.summary())} | {
        name: json.dumps(frame.drop(columns=frame.columns.intersection(CLOCK)).to_dict("list"), default=plain)
        for name, frame in frames.items()
    }


def first_lines(journal: Path, count: int, to: Path) -> Path:
    """A journal that ends after so many lines, in the middle of the next one."""
    lines = journal.read_bytes().splitlines(keepends=True)
    to.write_bytes(b"".join(lines[:count]) + b"".join(lines[count : count + 1])[:20])
    return to


def journal_at(path: Path, every_s: float = 0.0) -> DecisionJournal:
    """A journal that says of what run it is."""
    journal = DecisionJournal(path, every_s)
    if journal.beginning is None:
        journal.begin(Beginning([], ".", {}))
    return journal


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_resumed_after_any_decision_is_the_same(tmp_path: Path, name: str) -> None:
    """What was decided before comes from the journal, and all that follows is as if nothing had happened."""
    config = ReplayConfig(**({"max_events": 60, "baseline": "tuned" not in name} | CONFIGS[name]))
    inputs = load_inputs(config)
    wanted = columns_of(run_replay(inputs=inputs))
    path = tmp_path / "journal"
    assert columns_of(run_replay(inputs=inputs, journal=journal_at(path))) == wanted
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    assert lines > 10
    for count in sorted({1, 2, lines // 3, lines // 2, lines - 1, lines}):
        part = first_lines(path, count, tmp_path / "part")
        assert columns_of(run_replay(inputs=inputs, journal=journal_at(part))) == wanted, count
        assert part.read_bytes().count(b"\n") == lines


def test_a_solver_that_failed_is_asked_again(tmp_path: Path) -> None:
    """A run that its solver ended keeps what was done, and goes on with the decision that it failed at."""
    config = ReplayConfig(solver=Scripted(None, SolverError("it broke")), max_events=4, baseline=False)
    journal = journal_at(tmp_path / "journal")
    with pytest.raises(RunFailedError, match="it broke") as caught:
        run_replay(config=config, journal=journal)
    assert (caught.value.result.recording.reason, len(caught.value.result.recording.decisions)) == ("failed", 1)
    assert journal.decided == 1
    journal.write()
    assert len(DecisionJournal(tmp_path / "journal").recorded) == 1


@pytest.fixture
def directory(tmp_path: Path) -> ResultDirectory:
    """A place, and a working directory."""
    (tmp_path / "work").mkdir()
    return ResultDirectory(tmp_path / "out", tmp_path / "work")


def begin(directory: ResultDirectory, **options: Any) -> None:
    """Begin a run, and leave it with its decisions."""
    inputs = load_inputs(ReplayConfig(**({"solver": "dp", "max_events": 20, "baseline": False} | options)))
    run_replay(inputs=inputs, journal=keep_decisions(directory, ["--solver", "dp"], inputs, 0.0))


def test_what_a_run_depends_on_must_be_as_it_was(
    directory: ResultDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs, options and versions; the message says what differs, and nothing is lost."""
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(sample_path(SAMPLE_TASKS).read_text() + "\n")
    begin(directory)
    beginning = find_unfinished(directory)
    assert (beginning.arguments, beginning.directory) == (["--solver", "dp"], str(Path.cwd()))
    before = (directory.working / JOURNAL).read_bytes()
    # Of two files that take each other's place, the first by name is named.
    was, now = r"was (missing|SHA-256 \w+) when the run was begun", r"is (missing|SHA-256 \w+) now"
    with pytest.raises(OutputError, match=rf"tasks\.toml: Cannot be resumed: {was}, {now}\."):
        begin(directory, tasks=tasks)
    monkeypatch.setattr("bftrainer.runs.run.versions", lambda: {"python": "2.7"})
    with pytest.raises(OutputError, match=r"^bftrainer: Cannot be resumed: was [\d.]+ when .* begun, is missing now"):
        begin(directory)
    assert (directory.working / JOURNAL).read_bytes() == before


def test_a_journal_of_others_is_not_read(directory: ResultDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's, something else, or of a run with other tasks."""
    begin(directory)
    content = (directory.working / JOURNAL).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("bftrainer.files.writing.os.geteuid", lambda: 12345)
        with pytest.raises(OutputError, match="found one of another user"):
            find_unfinished(directory)
    lines = content.splitlines(keepends=True)
    for other in (b"something else\n", b"[]\n", lines[0] + b"[1, 2]\n", lines[0] + b"\0\n"):
        (directory.working / JOURNAL).write_bytes(other)
        with pytest.raises(OutputError, match="Expected decisions of this run, found something else"):
            begin(directory)
    (directory.working / JOURNAL).write_bytes(lines[0][:20])
    with pytest.raises(OutputError, match="Expected an unfinished run to resume, found no run"):
        find_unfinished(directory)
    counts, *others = json.loads(lines[1])
    for damaged in ([0, 0, 0, *counts], [9999, *counts[1:]], ["1", *counts[1:]]):
        (directory.working / JOURNAL).write_bytes(lines[0] + json.dumps([damaged, *others]).encode() + b"\n")
        with pytest.raises(OutputError, match="Expected decisions of this run"):
            begin(directory)
