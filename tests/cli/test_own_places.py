"""No command writes onto what it reads, nor two outputs onto one file, whatever it is told to replace."""

from __future__ import annotations

import os

import pytest

from bftrainer.nodelogs import read_node_log, write_node_log
from tests.cli.conftest import check_refusal
from tests.recurring import TRACES, write_world
from tests.tiny import contents

COMMANDS = {
    "trace stats nodes.csv --terminations hard.csv": "hard.csv",
    "trace stats nodes.csv --additions x.csv --terminations x.csv": "x.csv",
    "convert nodes.csv link.csv": "link.csv",
    "convert Jbnd.pkl JNPs.pkl -scfn JNPs.pkl": "JNPs.pkl",
    "trace edit nodes.csv --start 1612915205 -o nodes.csv": "nodes.csv",
    "trace edit nodes.csv --nodes names.csv -o names.csv": "names.csv",
    "trace edit nodes.csv --anonymise key.csv -o key.csv": "key.csv",
    "trace generate --like nodes.csv -o nodes.csv": "nodes.csv",
    "import --format slurm logs -o logs/a.csv": "a.csv",
    "spot simulate --trace nodes.csv --figure figure.png": "figure.png",
    f"zeus simulate {' '.join(TRACES)} --output traces.json": "traces.json",
    "replay -ndmap evt.pkl -bdfn tasks.toml --solver dp --report evt.pkl": "evt.pkl",
    "bso jobs job -o tokens.csv --token-file tokens.csv": "tokens.csv",
}


@pytest.fixture
def here(here):
    """The small world's log as a table, with links to it."""
    write_node_log(here / "nodes.csv", read_node_log(here / "evt.pkl"))
    write_world(here)
    for name in ("link.csv", "figure.png"):
        (here / name).symlink_to("nodes.csv")
    os.link(here / "nodes.csv", here / "hard.csv")
    (here / "traces.json").symlink_to("train.csv")
    (here / "names.csv").write_text("a\n")
    (here / "x.csv").touch()
    (here / "tokens.csv").write_text(16 * "t")
    (here / "log.csv").write_text("JobID|NodeList\n")
    (here / "logs").mkdir()
    (here / "logs" / "a.csv").write_text("JobID|NodeList\n")
    return here


@pytest.mark.parametrize(("command", "place"), COMMANDS.items())
def test_inputs_are_kept(call, here, command, place):
    """A file that is read is not written, by no name that it has; it is named, and nothing is done."""
    before = contents(here)
    done = call(*command.split(), "--force")
    check_refusal(done)
    assert f"{place}: Would overwrite" in done.err
    assert contents(here) == before


@pytest.mark.parametrize(("there", "target"), [("log.csv", "log.csv.gz"), ("log.csv.gz", "log.csv")])
def test_metadata_of_another_log_stay(call, here, there, target):
    """`log.csv` and `log.csv.gz` would share `log.json`: the second is refused, with --force too, and says why."""
    (here / "log.csv").unlink(missing_ok=True)
    (here / "log.json").unlink(missing_ok=True)
    assert call("convert", "evt.pkl", there).status == 0
    before = contents(here)
    for force in ((), ("--force",)):
        done = call("convert", "evt.pkl", target, *force)
        check_refusal(done)
        assert f"{target}: Its metadata would replace log.json, those of {there}; choose another name." in done.err
    assert contents(here) == before
