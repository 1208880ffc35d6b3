"""Evaluations made again: cells are paired means over windows or seeds, equal ones have equal bytes."""

import json
from pathlib import Path
from statistics import fmean

import pyarrow.parquet as pq
import pytest

from bftrainer.campaigns import reproduce as module
from bftrainer.campaigns import sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import BftrainerError, OutputError, SettingsError
from bftrainer.nodelogs import write_node_log
from bftrainer.report.metrics import estimate
from bftrainer.spot.generation import generate_trace
from tests.tiny import contents

FILES = {"page.html", "data.csv", "summary.json"}


def made_again(paper, directory, log=None, on_done=print, workers=1, **how):
    """Make the quick evaluation of a paper again."""
    command = f"bftrainer reproduce {paper} --quick"
    return module.reproduce_paper(paper, log, directory, command, on_done, workers, quick=True, **how)


def cells(summary, figure):
    """Means of a figure by line and level."""
    return {(cell["line"], cell["level"]): cell["mean"] for cell in summary["cells"] if cell["figure"] == figure}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Five hours of twelve nodes."""
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    write_node_log(path, generate_trace(0.2, nodes=12).log)
    return path


@pytest.fixture
def few(monkeypatch):
    """Two levels of two options, and all ways to decide."""
    published = module.read_papers()
    published["bftrainer"]["levels"]["quick"] = {"forward_time_s": [10.0, 120.0], "max_tasks": [5, 30]}
    monkeypatch.setattr(module, "read_papers", lambda: published)


@pytest.mark.long
@pytest.mark.usefixtures("few")
def test_an_evaluation_of_bftrainer(log, tmp_path, monkeypatch):
    """Cells are means over windows, and of quotients in one window; resumed, it replays nothing and is the same.

    Its sweep.toml describes the points that were replayed.
    """
    progress, out = [], tmp_path / "out"
    found = made_again("bftrainer", out, log, progress.append)
    rows = pq.read_table(out / "sweep.parquet").to_pylist()
    assert len(rows) == len(progress) == module.count_steps("bftrainer", quick=True) == 4 * 2 * (2 + 2 + 3)
    assert len({str(row["window"]) for row in rows}) == 4

    def select(**settings):
        """Runs with these settings and none besides, by window."""
        free = ("forward_time_s", "max_tasks", "solver", "objective", "decide_on")
        wanted = dict.fromkeys(free) | settings
        some = [row for row in rows if row["tasks"].startswith("tasks/nas-")]
        return {row["window"]: row for row in some if all(row[name] == value for name, value in wanted.items())}

    usual, shares = select(max_tasks=30), select(solver="equal-share")
    assert cells(found, "max_tasks")["nas", 30] == estimate([row["efficiency"] for row in usual.values()]).mean
    quotients = [shares[at]["work_done"] / usual[at]["work_done"] - 1 for at in usual]
    assert cells(found, "work_done")["nas", "equal shares, not the optimum"] == estimate(quotients).mean
    assert fmean(cells(found, "max_tasks").values()) > 0.5
    keys = {point.key for point in read_sweep(out / "sweep.toml").resolve_points()}
    assert keys == {path.name for path in (out / "runs").iterdir()}
    first = contents(out)
    for name in FILES:
        (out / name).unlink()
    monkeypatch.setattr(sweep, "run_replay", None)
    with pytest.raises(OutputError, match="--resume continues in it"):
        made_again("bftrainer", out, log)
    made_again("bftrainer", out, log, resume=True)
    assert contents(out) == first


@pytest.mark.usefixtures("few")
def test_a_replay_that_fails_ends_the_evaluation(log, tmp_path, monkeypatch):
    """The message names directory, point and reason, and no page is made."""

    def fail(**options):
        """What a solver may do."""
        raise RuntimeError(options["command"][:15])

    monkeypatch.setattr(sweep, "run_replay", fail)
    with pytest.raises(BftrainerError, match="out: Point 0 failed: RuntimeError: bftrainer sweep"):
        made_again("bftrainer", tmp_path / "out", log)
    assert not (tmp_path / "out" / "page.html").exists()


@pytest.mark.parametrize(
    "paper",
    [
        "bamboo",
        pytest.param("zeus", marks=pytest.mark.slow),
        pytest.param("bftrainer", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_equal_evaluations_have_equal_bytes(paper, tmp_path):
    """On the samples, with one process and two; results stay unless they are to be replaced."""
    found = made_again(paper, tmp_path / "one")
    made_again(paper, tmp_path / "two", workers=2)
    one, two = ({name: (tmp_path / place / name).read_bytes() for name in FILES} for place in ("one", "two"))
    assert one == two
    assert one["data.csv"].count(b"\n") == 1 + len(found["cells"])
    assert {cell["n"] for cell in found["cells"]} == {{"bftrainer": 4, "zeus": 5, "bamboo": 10}[paper]}
    with pytest.raises(OutputError, match="--force"):
        made_again(paper, tmp_path / "one")


@pytest.mark.parametrize("paper", ["bftrainer", "bamboo"])
def test_other_files_are_never_replaced(paper, tmp_path, log):
    """A directory with a file of somebody's is refused, also with force."""
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"found (other files|mine)"):
        made_again(paper, tmp_path, log if paper == "bftrainer" else None, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("paper", "place"),
    [("bftrainer", "BFTrainer/Replayer"), ("zeus", "ml-energy/zeus"), ("bamboo", "uclasystem/bamboo")],
)
def test_a_whole_evaluation_needs_its_log(paper, place):
    """The message says in a line where the log is published; a quick one needs none; its path has to be text."""
    with pytest.raises(SettingsError, match=f"^Expected --log, .*https://github.com/{place}.*--quick") as error:
        module.check_log(paper, None, quick=False)
    assert "\n" not in str(error.value)
    module.check_log(paper, None, quick=True)
    with pytest.raises(SettingsError, match=r"idle\.csv: Expected a path in Unicode"):
        module.check_log("bftrainer", Path("\udcffidle.csv"), quick=True)


def test_what_zeus_saves_is_said_by_job(monkeypatch):
    """The claim has the least and the most saving of the jobs at eta 0.5; Zeus regrets less than a grid search."""
    monkeypatch.setattr(module, "_ETAS", (0.5,))
    found = module.evaluate_zeus(None, 1, quick=True).summary("zeus", None)
    saved = sorted(-mean for mean in cells(found, "eta-energy").values())
    assert found["reported"][0]["here"] == f"{100 * saved[0]:.1f} to {100 * saved[-1]:.1f} % by job"
    assert 0 < saved[0] < saved[-1] < 1
    regret = cells(found, "regret")
    tuned, grid = ([regret[key] for key in regret if key[0] == name] for name in ("zeus+jit", "grid+jit"))
    assert len(tuned) == len(grid) == len(saved)
    assert 0 < fmean(tuned) < fmean(grid) < 1


def test_preemption_takes_throughput_and_value(tmp_path):
    """Both fall with the level; without preemption nothing is lost; the times of a run add up to it."""
    found = made_again("bamboo", tmp_path / "out")
    for figure in ("throughput", "value"):
        means = [*cells(found, figure).values()]
        assert means == sorted(means, reverse=True)
        assert means[0] > 2 * means[3]
    assert cells(found, "throughput")["checkpointing on spot instances", 0.0] == 1.0
    times = cells(found, "time")
    for level in {level for _, level in times}:
        assert sum(times[key] for key in times if key[1] == level) == pytest.approx(1)


def test_a_trace_too_small_to_train_on_has_a_page(tmp_path):
    """On fewer nodes than a pipeline nothing is ever done: there is no ratio, and the page says so."""
    (tmp_path / "few.csv").write_text("0,add,a\n0,add,b\n3600000,remove,b\n7200000,add,c\n86400000,remove,a\n")
    found = made_again("bamboo", tmp_path / "out", tmp_path / "few.csv")
    assert found["reported"][0]["here"] == "all, as checkpointing gets nothing done"
    assert set(cells(found, "throughput").values()) == {None}


def test_pages_say_numbers_intervals_and_sample_sizes():
    """A figure's table has each cell with its interval, and says n; unknown ones are a dash, in JSON null."""
    lines = {"a": {1.0: estimate([0.1, 0.2]), 2.0: module.mean_of([None])}, "b": {1.0: module.mean_of([0.5, None])}}
    about = {"label": "share of it", "axis": "level", "reading": "What it shows."}
    table = module.figure_table(lines, about)
    assert table.rows == [["1", "15.00 % (-48.53 to 78.53)", "50.00 %"], ["2", "-", "-"]]
    assert table.note.endswith("95 % intervals; n = 0, 1, 2.")
    bounded = module.figure_table(lines, about | {"within": (0.0, 1.0)})
    assert bounded.rows[0][1] == "15.00 % (0.00 to 78.53)"
    assert "which end where values can" in bounded.note
    words = {"log": "A log", "windows": 4}
    summary = module.Reproduction({"max_tasks": lines}, ["5 %"], words, ["A note."]).summary("bftrainer", None)
    assert json.dumps(summary["cells"][1], allow_nan=False).endswith('"mean": null, "ci95": null, "n": 0}')
    page = module.reproduction_page(summary, [table], "how").decode()
    assert "best efficiency U: 5 % here, up to 93 % in the paper (not comparable)." in page
    assert all(text in page for text in ("a generated log of 512", "A note.", "A log in 4 windows", "95 % intervals"))
