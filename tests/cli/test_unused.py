"""Options that change nothing are refused, all in one manner, before anything is done."""

from __future__ import annotations

import pytest

from tests.cli.conftest import check_refusal
from tests.tiny import contents

SPOT = "0,add,a\n0,add,b\n60000,remove,a\n"
PROFILE = "schema = 1\nworld_size = [1]\niteration_s = [18.0]\nreconfiguration_s = 90.0\ncheckpoint_s = 80.0\n"
REPLAY = "replay -ndmap evt.pkl -bdfn tasks.toml"
UNUSED = {
    "convert evt.pkl o.csv --scaling @": "--scaling (a node log has no scaling)",
    "convert evt.pkl o.csv -scfn JNPs.pkl": "--scalability (a node log has no scaling)",
    "convert tasks.toml o.csv --scaling linear": "--scaling (all tasks of tasks.toml have a scaling)",
    "convert Jbnd.pkl o.toml -scfn JNPs.pkl --scaling linear": "--scaling (all tasks of Jbnd.pkl have a scaling)",
    "tasks generate --scenario nas --count 2 --model resnet18 -o t.toml": "--model (nas is a mix of all models)",
    "trace edit evt.pkl --start 1612915200 --tz Europe/Berlin -o x.csv": "--tz (the times say theirs)",
    "trace edit evt.pkl --end 2021-02-10T00:00:20Z --tz Asia/Tokyo -o x.csv": "--tz (the times say theirs)",
    "trace generate --nodes 2 --model minutes -o a.parquet": "--nodes (of the model supercomputer alone)",
    "trace generate --set big-addition-share=0 -o a.parquet": "--set big-addition-share (of the model minutes alone)",
    "spot simulate --trace s.csv --initial-nodes 4": "--initial-nodes (without --additions",
    "spot simulate --trace s.csv --profile p.toml --load-on-reconfigure": "--load-on-reconfigure (the profile has no",
    "spot sweep --on-demand-price 3": "--on-demand-price (without --price",
    "sweep s.toml --engine local --scheduler tcp://x:1": "--scheduler (of the engine dask alone)",
    "sweep s.toml --resume --force": "--force (--resume",
    f"{REPLAY} --seed 3": "--seed (nothing is drawn",
    f"{REPLAY} --sample plain": "--sample (-bdfn names the tasks)",
    f"{REPLAY} --scaling linear": "--scaling (all tasks of tasks.toml have a scaling)",
    f"{REPLAY} --policy grid --power-policy oracle": "--policy (no task is tuned), --power-policy (no task is tuned)",
    f"{REPLAY} --profile-noise 0.1": "--profile-noise (no curve is learned)",
    f"{REPLAY} --power-options all --carbon 3": "--power-options (no task is tuned), --carbon (no power is known",
}


@pytest.fixture
def inputs(here):
    """Whatever the commands below need to come as far as that."""
    files = {
        "s.csv": SPOT,
        "c.csv": "timestamp,count\n2026-09-01T12:00:00Z,1\n2026-09-01T12:01:00Z,2\n",
        "p.toml": PROFILE,
        "s.toml": 'schema = 1\n[base]\nsolver = "dp"\n[grid]\nforward_time_s = [10.0]\n',
    }
    for name, text in files.items():
        (here / name).write_text(text)
    return here


@pytest.mark.parametrize(("words", "said"), UNUSED.items(), ids=UNUSED.keys())
def test_options_that_have_no_effect(call, inputs, words, said):
    """One line names the option and why, exit status 2, and nothing is written."""
    before = contents(inputs)
    done = call(*words.split())
    check_refusal(done)
    assert done.err.startswith("Error: Options that have no effect: --")
    assert said in done.err
    assert contents(inputs) == before


SWEEP = """\
schema = 1
[base]
node_log = "evt.pkl"
tasks = "tasks.toml"
baseline = false
"""
OF_SWEEPS = {
    "[grid]\nseed = [1, 2]\n": (7, "seed (nothing is drawn without --initial random, tuned tasks or learned curves)"),
    "power_options = 'all'\n": (6, "power_options (no task is tuned)"),
    "pue = 1.5\n": (6, "pue (no power is known without tuned tasks or --idle-power)"),
}


@pytest.mark.parametrize(("text", "line", "said"), [(text, *told) for text, told in OF_SWEEPS.items()])
def test_options_of_sweeps_that_have_no_effect(call, inputs, text, line, said):
    """They are refused in the file as on the command line, with their line, before anything is written."""
    (inputs / "sweep.toml").write_text(SWEEP + text)
    before = contents(inputs)
    done = call("sweep", "sweep.toml")
    check_refusal(done)
    assert f"sweep.toml: line {line}: Options that have no effect: {said}" in done.err
    assert contents(inputs) == before


@pytest.mark.usefixtures("inputs")
def test_options_of_sweeps_that_have_an_effect_somewhere(call, inputs):
    """What has an effect on one point is no slip, though it has none on another one."""
    text = '[grid]\nsolver = ["highs", "dp"]\n[[point]]\ninitial = "random"\nseed = 3\nsolver = "dp"\n'
    (inputs / "sweep.toml").write_text(SWEEP + text)
    assert call("sweep", "sweep.toml", "--workers", 1).status == 0


@pytest.mark.usefixtures("inputs")
def test_options_of_other_formats(call):
    """Told by its first records, a log refuses what its format does not take, and names all of it."""
    done = call("import", "s.csv", "--columns", "a,b", "--reserved-busy", "-o", "x.csv")
    assert done.status == 2
    assert done.err.endswith("--columns (not of the format spot), --reserved-busy (not of the format spot).\n")


@pytest.mark.usefixtures("inputs")
def test_what_is_not_typed_is_not_refused(call):
    """Defaults are nobody's expectation."""
    assert call("trace", "stats", "s.csv").status == 0
    assert call("spot", "simulate", "--trace", "s.csv", "--profile", "p.toml", "--depth", 1).status == 0


def test_a_log_merged_with_itself(call, inputs):
    """A log that is named twice, be it by another path, is refused: it tells nothing more."""
    for other in ("evt.pkl", inputs / "evt.pkl"):
        done = call("trace", "edit", "evt.pkl", other, "-o", "x.parquet")
        check_refusal(done)
        assert "Expected each log once, got evt.pkl again" in done.err
    assert not (inputs / "x.parquet").exists()
