"""Tuned tasks, power and carbon as typed: what is refused in a line, what is said aside, and what ends up in files."""

from __future__ import annotations

import pytest

from tests.cli.conftest import check_refusal
from tests.tiny import contents

TASKS = """\
schema = 1
[[task]]
name = "J0"
group = "g"
min_nodes = 1
max_nodes = 4
gpus_per_node = 2
[task.scaling]
model = "linear"
[task.zeus]
train_trace = "train.csv"
power_trace = "power.csv"
dataset = "images"
network = "net"
optimizer = "sgd"
target_metric = 0.9
max_epochs = 9
default_batch_size = 32
eta = 0.5
beta = 2.0
policy = "zeus"
power_policy = "jit"
"""
TRAIN = """\
dataset,network,batch_size,optimizer,target_metric,target_epoch
images,net,16,sgd,0.9,6
images,net,32,sgd,0.9,4
images,net,64,sgd,0.9,
images,net,128,sgd,0.9,5
"""
POWER = """\
dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
images,net,16,sgd,100,6.0,90.0
images,net,16,sgd,200,4.0,180.0
images,net,32,sgd,100,5.0,95.0
images,net,32,sgd,200,3.0,190.0
images,net,64,sgd,100,4.0,99.0
"""


@pytest.fixture
def replay(call, here):
    """Replay the small world's log with a tuned task, of whose section lines are replaced."""
    (here / "train.csv").write_text(TRAIN, encoding="utf-8")
    (here / "power.csv").write_text(POWER, encoding="utf-8")

    def run(*words, text=TASKS, **changes):
        """Write the task set, run the command."""
        for key, value in changes.items():
            line = next(line for line in text.splitlines() if line.startswith(f"{key} = "))
            text = text.replace(line, f"{key} = {value}")
        (here / "tuned.toml").write_text(text, encoding="utf-8")
        return call("replay", "-ndmap", "evt.pkl", "-bdfn", "tuned.toml", "--output-dir", "out", *words)

    return run


SECTIONS = {
    "dataset": ('"image"', "train.csv, task J0: The trace has no job image,net,sgd. Did you mean 'images,net,sgd'?"),
    "train_trace": ('"trian.csv"', "trian.csv: No such file (task J0)."),
}


@pytest.mark.parametrize(("key", "value", "said"), [(key, *each) for key, each in SECTIONS.items()], ids=SECTIONS)
def test_section(replay, here, key, value, said):
    """What a section asks for and the traces lack, or what is out of range, is named with the nearest there is."""
    replay("--dry-run")
    before = contents(here)
    done = replay("--solver", "dp", **{key: value})
    check_refusal(done)
    assert said in done.err
    assert contents(here).keys() == before.keys()


def test_a_default_that_never_reaches_the_target(replay):
    """The replay runs, says why the group was given up, and succeeds."""
    done = replay("--solver", "dp", "--no-baseline", default_batch_size=64)
    assert done.status == 0
    assert "0 reached their target in 1 tries, 1 failed" in done.out
    assert "  given up             Job(images,net,sgd,0.9,bs64~9): The default batch size 64 did not conv" in done.out


def test_summary_names_all_files(replay, here):
    """Series and traces are inputs as well, with their checksums; the settings say what was asked for."""
    (here / "cap.csv").write_text("time,power_w\n0,900\n25,400\n", encoding="utf-8")
    summary = replay("--solver", "highs", "--power-cap", "cap.csv", "--carbon", 300, "--json", "--no-baseline").json
    assert [each["path"] for each in summary["inputs"]["traces"]] == ["train.csv", "power.csv"]
    assert summary["inputs"]["power_cap"]["path"] == "cap.csv"
    assert len(summary["inputs"]["power_cap"]["sha256"]) == 64
    assert "carbon" not in summary["inputs"]
    assert (summary["settings"]["power_cap"], summary["settings"]["carbon"]) == ("cap.csv", 300.0)


def test_no_efficiency_is_said(call):
    """Where work does not add up, as in the embedded tuned tasks, a note says why there is no efficiency."""
    done = call("replay", "--sample", "tuned", "--solver", "dp", "--max-events", 20)
    assert "Note: no efficiency: tuned tasks count work in epochs over different datasets" in done.err
    assert "efficiency" not in done.out
