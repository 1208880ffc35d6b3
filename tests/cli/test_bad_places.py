"""Places where nothing can be written are refused; earlier results stand, and nothing is left behind."""

from __future__ import annotations

import os
import resource

import pytest

from tests.cli.conftest import assert_matches, check_refusal
from tests.tiny import RESULTS, contents, spawn


def test_existing_directory(refused, here):
    """An existing result directory that was asked for is refused, before the inputs are read."""
    (here / "mine-itrOut").mkdir()
    (here / "mine-itrOut" / "file").touch()
    assert_matches(r"mine-itrOut: .*--output-dir .*--force", refused("-ndmap", "absent.pkl", "-o", "mine-itrOut"))


@pytest.mark.long
@pytest.mark.no_cover
def test_disk_full(here):
    """When the disk fills while results are written, an earlier result stays intact and no litter remains."""
    words = ("-ndmap", "evt.pkl", "-bdfn", "Jbnd.pkl", "-scfn", "JNPs.pkl", "--solver", "dp")
    assert spawn("bftrainer-replay", *words, cwd=here).status == 0
    before = contents(here)
    assert {path.name for path in (here / "debug-itrOut").iterdir()} == RESULTS

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    for directory in ("debug-itrOut", "new/results"):
        done = spawn("bftrainer-replay", *words, "--force", "--output-dir", directory, cwd=here, preexec_fn=fill)
        check_refusal(done, status=1)
        assert done.err.startswith(f"Error: {directory}: ")
        assert contents(here) == before


@pytest.mark.long
def test_stdout_full(here):
    """A full disk behind standard output is one line, and the results stand."""
    with open("/dev/full", "w") as full:
        done = spawn("bftrainer-replay", "--solver", "dp", "--max-events", 5, cwd=here, stdout=full)
    check_refusal(done, status=1)
    assert {path.name for path in (here / "sample-1-itrOut").iterdir()} == RESULTS


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_closed_streams(here, number):
    """Without standard output or error there is nothing to complain about: the results stand, and hold no prints."""
    words = ("--solver", "dp", "--max-events", 5, "--no-baseline")
    done = spawn("bftrainer-replay", *words, cwd=here, preexec_fn=lambda: os.close(number))
    assert (done.status, "Traceback" in done.err) == (0, False)
    results = here / "sample-1-itrOut"
    assert {path.name for path in results.iterdir()} == RESULTS
    assert (results / "step-logs.csv").read_text().count("\n") == 6


@pytest.mark.long
@pytest.mark.parametrize(("name", "encoding"), [("ergebnis-ü", "ascii"), (os.fsdecode(b"\xff"), "utf-8")])
def test_names_that_cannot_be_printed(here, name, encoding):
    """A name that standard output cannot spell, or that is no text at all, is printed by its codes."""
    (here / "evt.pkl").rename(here / f"{name}.pkl")
    env = {"PYTHONIOENCODING": encoding}
    done = spawn("bftrainer", "convert", f"{name}.pkl", f"{name}.parquet", cwd=here, env=env)
    assert (done.status, done.err) == (0, "")
    words = ("-bdfn", "tasks.toml", "--solver", "dp", "--no-baseline", "--output-dir", name)
    done = spawn("bftrainer-replay", "-ndmap", f"{name}.parquet", *words, cwd=here, env=env)
    assert (done.status, done.err) == (0, "")
    shown = name.encode("ascii", "backslashreplace").decode()
    assert done.out.endswith(f"Results: {shown}\n")
    assert {path.name for path in (here / name).iterdir()} == RESULTS
