"""Whatever a command is told to write to or to replace: results of ours alone are deleted, inputs never written."""

import os

import pytest

from bftrainer.nodelogs import read_node_log, write_node_log
from tests.cli.conftest import check_refusal
from tests.recurring import TRACES, write_world
from tests.tiny import SWEEP, contents

SPOT_CSV = "500,add,n1\n1000,add,n2\n61000,remove,n1\n"
REPLAY = ("replay", "-ndmap", "evt.pkl", "-bdfn", "tasks.toml", "--solver", "dp")
SIMULATE = ("spot", "simulate", "--trace", "trace.csv")
SPOT_SWEEP = ("spot", "sweep", "--repeats", 2, "--days", 0.1, "--jobs", 1)
SWEEPING = ("sweep", "sweep.toml", "--workers", 1)
COMMANDS = [REPLAY, SIMULATE, SPOT_SWEEP, SWEEPING]


@pytest.fixture
def here(here):
    """The small world within a repository, with a trace, and a sweep whose file has the name that a copy of it gets."""
    (here / "sweep.toml").write_text(SWEEP)
    (here / "trace.csv").write_text(SPOT_CSV)
    (here / ".git").mkdir()
    (here / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (here / "summary.json").write_text("{}")
    (here / "runs").mkdir()
    (here / "runs" / "diary.txt").write_text("Up the hill.")
    (here / "link").symlink_to(here)
    (here / "mine").mkdir()
    (here / "mine" / "sweep.toml").write_text("mine")
    return here


def named(words):
    return " ".join(map(str, words[:2]))


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_other_directories_are_refused(call, here, words):
    """The current one, a repository, one with the inputs or above them, one of the user's: also where it is forced."""
    before = contents(here.parent)
    for place in (".", "..", "link", "mine", ".git", "evt.pkl"):
        for more in ((), ("--force",), *((("--resume",),) if words is SWEEPING else ())):
            check_refusal(call(*words, "-o", place, *more), place)
            assert contents(here.parent) == before


@pytest.mark.parametrize("words", COMMANDS[:3], ids=named)
def test_what_is_put_beside_results_is_kept(call, here, words):
    """Nothing is forced upon results with a note beside them, which is named, until it is moved away."""
    assert call(*words, "-o", "out").status == 0
    (here / "out" / "notes.txt").write_text("The one with the large tasks.")
    before, told = contents(here), "Expected nothing but results to replace, found notes.txt"
    for place in ("out", "link/out"):
        check_refusal(call(*words, "-o", place, "--force"), f"{place}: {told}")
    assert contents(here) == before
    (here / "out" / "notes.txt").rename(here / "notes.txt")
    assert call(*words, "-o", place, "--force").status == 0


def test_pages_are_no_results(call, here):
    """A page among results would be in the way of the next run that replaces them."""
    assert call(*REPLAY, "-o", "out").status == 0
    before = contents(here)
    check_refusal(call(*REPLAY, "-o", "out", "--force", "--report", "out/page.html"), "Expected --report outside out")
    assert contents(here) == before


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a cluster that was not made complains when it goes
def test_a_cluster_out_of_reach_changes_nothing(call, here):
    """Neither where there is no sweep yet, nor where one would be replaced."""
    (here / "queue.toml").write_text('system = "slurm"\njobs = 2\ncores = 4\n')
    for begin in (None, SWEEPING):
        assert begin is None or call(*begin).status == 0
        before = contents(here)
        for file in ("evt.pkl", "queue.toml"):
            check_refusal(call("sweep", "sweep.toml", "--dask-jobqueue", file, "--force"))
            assert contents(here) == before


# --- what is read

ONTO_INPUTS = {
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
def linked(here):
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


@pytest.mark.parametrize(("command", "place"), ONTO_INPUTS.items())
def test_inputs_are_kept(call, linked, command, place):
    """A file that is read is not written, by no name that it has; it is named, and nothing is done."""
    before = contents(linked)
    check_refusal(call(*command.split(), "--force"), f"{place}: Would overwrite")
    assert contents(linked) == before


def test_metadata_of_another_log_stay(call, here):
    """`log.csv` and `log.csv.gz` would share `log.json`: the second is refused, with --force too, and says why."""
    for there, target in (("log.csv", "log.csv.gz"), ("more.csv.gz", "more.csv")):
        assert call("convert", "evt.pkl", there).status == 0
        before, beside = contents(here), there.partition(".")[0]
        said = f"{target}: Its metadata would replace {beside}.json of {there}; choose another name."
        for force in ((), ("--force",)):
            check_refusal(call("convert", "evt.pkl", target, *force), said)
        assert contents(here) == before
