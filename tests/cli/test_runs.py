"""`bftrainer runs`: what there is, whether it is as it was written, and what may go."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq
import pytest

from bftrainer.files.claims import LOCK, Claim
from bftrainer.files.directories import CHECKPOINT, result_directory
from bftrainer.files.manifest import MANIFEST
from bftrainer.runs.kept import clean, kept_runs


def results(place):
    """Make a result directory."""
    with result_directory([place], force=True) as directory:
        (directory.working / "summary.json").write_text("{}")
        (directory.working / "table").write_text("12345")


def killed(place, *names):
    """Begin results in a process that is killed before they are whole."""
    child = os.fork()
    if not child:
        with result_directory([place]) as directory:
            for name in names:
                (directory.working / name).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_states(call, here):
    """Finished, unfinished, left over, in use and partial; other directories are not listed."""
    results(here / "done")
    results(here / "part")
    (here / "part" / CHECKPOINT).touch()
    (here / "mine").mkdir()
    killed(here / "left")
    killed(here / "later", CHECKPOINT)
    with result_directory([here / "now"]):
        found = call("runs", "list", "--json").json
        assert {run["path"]: run["state"] for run in found} == {
            "done": "finished",
            "left": "left over",
            "later": "unfinished",
            "now": "in use",
            "part": "partial",
        }
        assert (
            next(run for run in found if run["path"] == "done")["size"] == 7 + (here / "done" / MANIFEST).stat().st_size
        )
        assert "This process" in call("runs", "list").out
        assert call("runs", "clean").out.startswith("left: left over")
    assert not (here / ".left.new").exists()
    assert (here / ".later.new").exists()
    assert call("runs", "clean", "--unfinished").out.startswith("later: unfinished")
    assert sorted(path.name for path in here.iterdir() if path.is_dir()) == ["done", "mine", "now", "part"]
    assert call("runs", "list", here / "mine").err == f"{here / 'mine'}: No runs.\n"


def test_runs_within_their_place(call, here, monkeypatch):
    """What a killed run to the current directory has left is listed and deleted; what else is there stays."""
    (here / "dot").mkdir()
    monkeypatch.chdir(here / "dot")
    killed(Path(), CHECKPOINT)
    monkeypatch.chdir(here)
    assert (here / "dot" / ".new" / CHECKPOINT).exists()
    (here / "dot" / "mine").touch()
    assert [(run["path"], run["state"]) for run in call("runs", "list", "dot", "--json").json] == [
        ("dot", "unfinished")
    ]
    assert call("runs", "clean", "dot").status == 0
    assert (here / "dot" / ".new").exists()
    assert call("runs", "clean", "dot", "--unfinished").out.startswith("dot: unfinished")
    assert os.listdir(here / "dot") == ["mine"]


@pytest.mark.skipif(os.getuid() != 0, reason="takes two users")
def test_those_of_others_are_listed_and_left_alone(monkeypatch):
    """In a shared place another user's unfinished runs, readable or not, hinder neither the list nor the rest."""
    here = Path(mkdtemp())  # pytest's are below one of its user's own
    monkeypatch.chdir(here)
    killed(here / "left", CHECKPOINT)
    killed(here / "closed")
    killed(here / "mine")
    (here / ".closed.new").chmod(0)
    os.chown(here / ".mine.new", 12345, -1)
    os.chown(here / ".mine.new" / LOCK, 12345, -1)
    here.chmod(0o777)
    with result_directory([here / "now"]):
        child = os.fork()
        if not child:
            failed = True
            with suppress(BaseException):  # whatever it is, it shows in the status
                os.setresuid(12345, 12345, 12345)
                Claim._held.clear()
                runs = kept_runs(Path())
                states = {"closed": "another's", "left": "another's", "mine": "left over", "now": "in use"}
                assert {run.path.name: run.state for run in runs} == states
                assert [run.writer for run in runs][-1].startswith(f"Process {os.getppid()} on ")
                assert [run.path.name for run in clean(Path(), unfinished=True)] == ["mine"]
                failed = False
            os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
    shutil.rmtree(here)


@pytest.mark.long
def test_results_that_nobody_sealed(call, here):
    """Readers say that nothing tells whether they are whole; of others they say nothing."""
    assert call("replay", "--max-events", 30, "--solver", "dp", "--output-dir", "run", "--no-baseline").status == 0
    for words in (("compare", "run"), ("plot", "pool", "run", "-o", "x.svg"), ("report", "run", "-o", "x.html")):
        assert call(*words).err == ""
    (here / "run" / MANIFEST).unlink()
    for words in (("compare", "run"), ("plot", "losses", "run", "-o", "y.svg"), ("report", "run", "-o", "y.html")):
        done = call(*words)
        assert (done.status, "Note: run: No checksums of its files (.bftrainer)" in done.err) == (0, True), done


@pytest.mark.parametrize(
    "name", ["summary.json", "step-logs.csv", "decisions.parquet", "tasks.parquet", "allocation.parquet"]
)
def test_readers_check_what_they_read(call, here, name):
    """A file that differs from what was written is refused by all that read it, though it may be read."""
    assert call("replay", "--max-events", 30, "--solver", "dp", "--output-dir", "run", "--no-baseline").status == 0
    path = here / "run" / name
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path), path, compression="none")
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    reading = [("report", "run", "-o", "x.html"), ("plot", "pool", "run", "-o", "x.svg"), ("audit", "run")]
    for words in (*reading, *([("compare", "run")] if name == "summary.json" else [])):
        done = call(*words)
        assert done.status in (1, 2), words
        assert f"{name}: Damaged, or changed since" in done.err or f"{name} is missing, or not as" in done.out, words


def test_damage(call, here):
    """Each file that is missing or differs is named, and the status says so; what is no result is refused."""
    results(here / "done")
    assert (call("runs", "verify", "done").status, call("runs", "verify", "done").out) == (0, "")
    shutil.copytree(here / "done", here / "copy")
    (here / "copy" / "table").write_text("1234")
    (here / "copy" / "summary.json").unlink()
    done = call("runs", "verify", "done", "copy")
    assert done.status == 1
    assert done.out.splitlines() == [
        "copy/summary.json: Missing.",
        "copy/table: Damaged, or changed since it was written: .bftrainer has another SHA-256.",
    ]
    (here / "copy" / MANIFEST).write_text("# Files that bftrainer has written here\ntable\n")
    assert "Has no checksum" in call("runs", "verify", "copy").out
    refused = call("runs", "verify", here)
    assert (refused.status, refused.out) == (2, "")
    assert "found no manifest" in refused.err
    assert "Expected a directory, found nothing" in call("runs", "list", "absent").err
