"""Runs that are killed and resumed: the same results as of those that are not, from whichever checkpoint."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bftrainer._core import core
from bftrainer.errors import OutputError, ResumeError
from bftrainer.files.directories import CHECKPOINT, ResultDirectory
from bftrainer.files.opening import SAMPLE_TASKS, SAMPLE_TUNED_TASKS, sample_path
from bftrainer.files.signed_journal import SignedJournal
from bftrainer.replay import Allocator, compiled
from bftrainer.replay.checkpoints import Checkpoints
from bftrainer.report.glossary import GLOSSARY
from bftrainer.runs import ReplayConfig, RunResult, load_inputs, run_replay
from bftrainer.runs.resumable import BEGUN, begun_run, checkpointed, last_checkpoint
from tests.checksums import changed_files

TUNED = sample_path(SAMPLE_TUNED_TASKS)
AFTER = b"test"
CONFIGS: dict[str, dict[str, Any]] = {
    "core": {"solver": "dp"},
    "core that asks": {"solver": "cbc"},
    "rows alone": {"solver": "dp", "decide_on": "nodes"},
    "random first": {"solver": "dp", "initial": "random"},
    "constraints": {"solver": "highs", "objective": "fair-share", "max_events": 12},
    "learning": {"solver": "dp", "scaling": "learned"},
    "tuned": {"solver": "dp", "tasks": TUNED},
    "tuned, capped": {"solver": "dp", "tasks": TUNED, "power_cap": 15_000.0, "power_options": "pareto"},
}
CLOCK = ["solve_s", "backend_s"]
CONFIGS |= {f"tuned by {name}": CONFIGS["tuned"] | {"policy": name} for name in ("gts", "ucb", "grid", "oracle")}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the core ask for checkpoints after a few instants."""
    monkeypatch.setattr(compiled, "STEPS_TO_CHECKPOINT", 3)


def plain(value: Any) -> Any:
    """An array as a list, and a time as a text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def columns_of(result: RunResult) -> dict[str, Any]:
    """Tables and summary, without wall-clock times."""
    timed = {key for key, term in GLOSSARY.items() if term.unit == "wall_s"}
    timed |= {"load_s", "replay_s", "baseline_s", "wall_s", *CLOCK}
    summary = {key: value for key, value in result.summary().items() if key not in timed and "solve" not in key}
    names = ["tasks", "decisions", "allocation", *["power", "attempts"][: 2 * bool(result.metered)]]
    frames = {name: result.frame(name) for name in [*names, *["beliefs"][: bool(result.learned)]]}
    return {"summary": summary} | {
        name: json.dumps(frame.drop(columns=frame.columns.intersection(CLOCK)).to_dict("list"), default=plain)
        for name, frame in frames.items()
    }


def first_frames(journal: Path, count: int, to: Path) -> Path:
    """A journal that ends after so many frames, in the middle of the next one."""
    shutil.copy(journal, to)
    with closing(SignedJournal(journal, AFTER)) as known:
        begin, length = known._frames[count - 1]
    with to.open("r+b") as file:
        file.truncate(min(begin + length + 50, journal.stat().st_size))
    return to


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_resumed_from_any_checkpoint_is_the_same(tmp_path: Path, name: str) -> None:
    """Whatever was recorded before comes from the journal, and all that follows is as if nothing had happened."""
    config = ReplayConfig(**({"max_events": 60, "baseline": "tuned" not in name} | CONFIGS[name]))
    inputs = load_inputs(config)
    wanted = columns_of(run_replay(inputs=inputs))
    path = tmp_path / "journal"
    whole = SignedJournal(path, AFTER)
    assert columns_of(run_replay(inputs=inputs, checkpoints=Checkpoints(whole, 0.0))) == wanted
    assert len(whole) > 10
    whole.close()
    for count in sorted({1, 2, len(whole) // 3, len(whole) // 2, len(whole) - 1, len(whole)}):
        part = SignedJournal(first_frames(path, count, tmp_path / "part"), AFTER)
        assert len(part) == count
        found = run_replay(inputs=inputs, checkpoints=Checkpoints(part, 0.0))
        assert columns_of(found) == wanted, count
        part.close()


@pytest.mark.parametrize("name", ["core that asks", "constraints", "tuned"])
def test_times_of_a_resumed_run_are_those_of_all_its_parts(tmp_path: Path, name: str) -> None:
    """What solvers took is part of what the replay took, also where that was before the run was resumed."""
    inputs = load_inputs(ReplayConfig(**({"max_events": 60} | CONFIGS[name])))
    for _ in range(3):
        with closing(SignedJournal(tmp_path / "journal", AFTER)) as journal:
            found = run_replay(inputs=inputs, checkpoints=Checkpoints(journal, 0.0))
        assert found.summary()["solve_wall_share"] <= 1.0


def test_records_beyond_memory_are_resumed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were moved to files are in checkpoints as well, in parts."""
    monkeypatch.setattr("bftrainer.files.mapped.MOST_BYTES", 20_000)
    monkeypatch.setattr("bftrainer.files.mapped._PIECE", 4096)
    test_a_run_resumed_from_any_checkpoint_is_the_same(tmp_path, "core")


def test_an_interrupted_run_can_be_resumed(tmp_path: Path) -> None:
    """What is shown as partial ends where the interrupt came; the run goes on from before it."""
    for name in ("core", "tuned"):
        inputs = load_inputs(ReplayConfig(**({"max_events": 200, "baseline": False} | CONFIGS[name])))
        wanted = columns_of(run_replay(inputs=inputs))
        calls = iter(range(10**6))
        journal = SignedJournal(tmp_path / name, AFTER)
        partial = run_replay(
            inputs=inputs, checkpoints=Checkpoints(journal, 1e9), interrupted=lambda calls=calls: next(calls) >= 2
        )
        assert partial.is_partial
        assert len(journal) > 0
        journal.close()
        with closing(SignedJournal(tmp_path / name, AFTER)) as journal:
            assert columns_of(run_replay(inputs=inputs, checkpoints=Checkpoints(journal, 1e9))) == wanted


@pytest.mark.skipif(core is None, reason="there is no compiled core")
def test_engines_do_not_take_each_others_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was begun with the core is refused without it, and the other way round."""
    inputs = load_inputs(ReplayConfig(solver="dp", max_events=200, baseline=False))

    def run(name: str) -> None:
        with closing(SignedJournal(tmp_path / name, AFTER)) as journal:
            run_replay(inputs=inputs, checkpoints=Checkpoints(journal, 0.0))

    run("core")
    with monkeypatch.context() as patched:
        patched.setattr(compiled, "core", None)
        run("general")
        with pytest.raises(ResumeError, match="begun with the compiled core, which is missing"):
            run("core")
    with pytest.raises(ResumeError, match="begun without the compiled core"):
        run("general")


@pytest.mark.skipif(core is None, reason="there is no compiled core")
@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_state_is_refused_by_the_core(seed: int) -> None:
    """Never a crash: indices and counts are checked, whatever the bytes say."""
    inputs = load_inputs(ReplayConfig(solver="dp", baseline=False))
    log = inputs.log
    allocator = Allocator(inputs.tasks, inputs.settings, log.nodes, log.start_ns)
    credit = compiled._credits_for_core(allocator)
    ends = {"end_s": log.window_s, "until_s": 1e9, "max_events": -1, "by_rows_only": False}

    def new() -> Any:
        return compiled._core_replay(core, log.row_arrays(), allocator, credit, **ends)

    first = new()
    first.run(30, None)
    state = bytearray(first.saved())
    rng = np.random.default_rng(seed)
    for place in rng.integers(len(state), size=int(rng.integers(1, 6))).tolist():
        state[place] = int(rng.integers(256))
    again = new()
    with suppress(ValueError):
        again.restore(bytes(state))
        again.run(200, None)
    with pytest.raises(ValueError, match="state of a replay of the same inputs"):
        new().restore(bytes(state[:-1]))


@pytest.fixture
def directory(tmp_path: Path) -> ResultDirectory:
    """A place, and a working directory."""
    (tmp_path / "work").mkdir()
    return ResultDirectory(tmp_path / "out", tmp_path / "work")


def begin(directory: ResultDirectory, **options: Any) -> None:
    """Begin a run, and leave it with a checkpoint or more."""
    inputs = load_inputs(ReplayConfig(**({"solver": "dp", "max_events": 20, "baseline": False} | options)))
    with checkpointed(directory, ["--solver", "dp"], inputs, 0.0) as checkpoints:
        run_replay(inputs=inputs, checkpoints=checkpoints)


def test_what_a_run_depends_on_must_be_as_it_was(
    directory: ResultDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs, options and versions; the message says what differs, and nothing is lost."""
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(sample_path(SAMPLE_TASKS).read_text() + "\n")
    begin(directory)
    assert begun_run(directory) == (("--solver", "dp"), Path.cwd())
    before = (directory.working / CHECKPOINT).read_bytes()
    with pytest.raises(ResumeError, match=r"Cannot be resumed: .* had SHA-256 .* when it was begun, .* now\."):
        begin(directory, tasks=tasks)
    monkeypatch.setattr("bftrainer.runs.resumable.versions", lambda: {"python": "2.7"})
    with pytest.raises(ResumeError, match=r"bftrainer [\d.]+ when it was begun, bftrainer missing now"):
        begin(directory)
    assert (directory.working / CHECKPOINT).read_bytes() == before


def test_a_journal_of_others_is_not_read(directory: ResultDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed with another key, changed, or something else: refused before anything in it is looked at."""
    begin(directory)
    content = (directory.working / BEGUN).read_bytes()
    monkeypatch.setenv("XDG_STATE_HOME", str(directory.working / "other"))
    with pytest.raises(ResumeError, match="Not written by this user on this machine, damaged, or of another run"):
        begun_run(directory)
    monkeypatch.undo()
    (directory.working / BEGUN).write_bytes(content[:-3] + b"abc")
    with pytest.raises(ResumeError, match="Not written by this user"):
        begun_run(directory)
    (directory.working / BEGUN).write_bytes(b"something else, of many bytes: " * 9)
    with pytest.raises(ResumeError, match="Expected a journal of this version"):
        begun_run(directory)
    (directory.working / BEGUN).write_bytes(b"")
    with pytest.raises(ResumeError, match="Expected the description of a run"):
        begun_run(directory)


def test_parts_of_runs_cannot_be_exchanged(directory: ResultDirectory) -> None:
    """The checkpoint of a run with other options, or one in the place of what describes the run, is refused."""
    begin(directory)
    mine = (directory.working / CHECKPOINT).read_bytes()
    (directory.working / BEGUN).unlink()
    inputs = load_inputs(ReplayConfig(solver="dp", max_events=20, baseline=False))
    with pytest.raises(ResumeError, match="of another run"), checkpointed(directory, ["-maxJ", "3"], inputs, 0.0):
        pass
    (directory.working / BEGUN).write_bytes(mine)
    with pytest.raises(ResumeError, match="of another run"):
        begun_run(directory)


def test_a_key_that_cannot_be_kept_is_one_line(directory: ResultDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends before it has begun, and says where the key would be."""
    (directory.working / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(directory.working / "file"))
    with pytest.raises(OutputError, match=r"file/bftrainer.*: Cannot keep checkpoints: Not a directory\."):
        begin(directory)


def test_without_a_place_for_the_key_runs_do_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container's user may have no home, or none to write to; whoever asks for checkpoints is refused there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    begun = ("--solver", "dp", "--max-events", "3", "--no-baseline", "--output-dir", "run")
    assert called(monkeypatch, *begun, "--checkpoint-every", "60") == 2
    assert called(monkeypatch, *begun) == 0
    assert "Note: Without checkpoints, as they cannot be signed: " in capsys.readouterr().err
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert called(monkeypatch, *begun, "--force") == 0
    assert "who has no home" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["cut off", "another's", "for all to read"])
def test_a_key_that_others_may_know_signs_nothing(
    directory: ResultDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Else whoever knows it could have anything run that a checkpoint may hold."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    begin(directory)
    key = tmp_path / "state" / "bftrainer" / "journal.key"
    if fault == "cut off":
        key.write_bytes(b"")
        with pytest.raises(ResumeError, match="Not written by this user"):
            begun_run(directory)
        assert len(key.read_bytes()) == 32
        return
    if fault == "another's":
        monkeypatch.setattr("bftrainer.files.signed_journal.os.geteuid", lambda: 12345)
    else:
        key.chmod(0o644)
    with pytest.raises(OutputError, match="Expected a key of this user's that no other may read or write"):
        begun_run(directory)


@pytest.mark.parametrize("size", [5, 30, 100, -1])
def test_a_run_killed_in_its_first_checkpoint_starts_anew(directory: ResultDirectory, size: int) -> None:
    """Or one for which the disk had no room: what is cut off is no checkpoint, and no fault either."""
    begin(directory)
    path = directory.working / CHECKPOINT
    first = path.read_bytes()
    with closing(SignedJournal(directory.working / BEGUN, b"run")) as begun:
        signature = begun.signature
    with closing(SignedJournal(path, signature)) as journal:
        first = first[: len(next(iter(journal)))]  # some bytes less than the frame with its head
    path.write_bytes(first[:size])
    assert last_checkpoint(directory) is None
    begin(directory)
    assert last_checkpoint(directory) is not None


def test_checkpoints_that_take_long_are_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they are asked for, at most a twelfth of the time goes to them."""
    clock_s = [0.0]
    monkeypatch.setattr("bftrainer.replay.checkpoints.time.monotonic", lambda: clock_s[0])
    with closing(SignedJournal(tmp_path / "journal", AFTER)) as journal:
        checkpoints, saving_s = Checkpoints(journal, 0.3), 0.0
        for _ in range(2000):
            clock_s[0] += 0.01
            if checkpoints.is_due:
                clock_s[0] += 0.1
                saving_s += 0.1
                checkpoints.save({}, b"")
    assert 1 / 15 < saving_s / clock_s[0] < 1 / 12


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Exit status of the command."""
    from bftrainer.cli._shared.group import guarded
    from bftrainer.cli.replay.replay import replay

    monkeypatch.setattr("sys.argv", ["bftrainer-replay", *words])
    return guarded(lambda **how: replay(list(words), **how), "bftrainer-replay")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--resume alone takes the options that the run was begun with; without anything to resume it is refused."""
    monkeypatch.chdir(tmp_path)
    call = partial(called, monkeypatch)
    begun = (
        "--solver",
        "dp",
        "--max-events",
        "20",
        "--no-baseline",
        "--output-dir",
        "run",
        "-maxJ",
        "10",
        "-Tfwd",
        "20",
    )
    swapped = (*begun[:-4], "-maxJ", "20", "-Tfwd", "10")
    real = compiled._run_core

    def killed(*given: Any) -> str:
        """Fail at the end of the replay, when there are checkpoints."""
        real(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr("bftrainer.replay.compiled._run_core" if core else "bftrainer.replay.compiled.replay", killed)
    heard = signal.getsignal(signal.SIGINT)
    assert call(*begun, "--checkpoint-every", "0.000001s") == 130
    signal.signal(signal.SIGINT, heard)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run.new"]
    assert call(*begun) == 2
    assert "run: An unfinished run is there; --resume continues it, --force starts anew." in capsys.readouterr().err
    assert call("--resume", "run", "--solver", "cbc") == 2
    assert "these differ" in capsys.readouterr().err
    assert call("--resume", "run", *swapped, "--checkpoint-every", "0.000001s") == 2
    assert "these differ: --forward-time, --max-tasks." in capsys.readouterr().err
    assert call("--resume", "run", "--json") == 2
    assert call("--resume", "run") == 0
    assert "run: Resumed at the checkpoint of" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert BEGUN not in {path.name for path in (tmp_path / "run").iterdir()}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["events"] == 20
    assert call("--resume", "run") == 2
    assert "Expected an unfinished run to resume, found a finished run." in capsys.readouterr().err
    assert call("--resume", "absent") == 2
    assert "found no run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("step", ["bftrainer.runs.write_run", "bftrainer.files.directories._seal"])
def test_a_run_whose_results_could_not_be_written_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    """Checkpoints are there until the results are whole: a disk that is full at the end costs no run."""
    monkeypatch.chdir(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(step, full)
        call = ("--solver", "dp", "--max-events", "20", "--no-baseline", "--output-dir", "r[1]")
        assert called(monkeypatch, *call, "--checkpoint-every", "0.000001s") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert called(monkeypatch, "--resume", "r[1]") == 0
    assert "Resumed at the checkpoint of" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["r[1]"]
    assert not {path.name for path in (tmp_path / "r[1]").iterdir()} & {BEGUN, CHECKPOINT}
    assert not changed_files(tmp_path / "r[1]")
