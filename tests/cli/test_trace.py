"""`bftrainer trace`, `convert` and `tasks`: figures, pairs, models, forms, keys."""

import json
import re
import tomllib

import pytest

from tests.cli.conftest import check_refusal
from tests.nodelogs.test_availability import COUNTS, SPOT


def test_stats_of_each_kind(call, here):
    """Each kind says what it is, prints a table, and has the same keys as JSON."""
    (here / "s.csv").write_text(SPOT)
    (here / "c.csv").write_text(COUNTS)
    (here / "t.csv").write_text("timestamp,number\n2021-01-01T00:01:30Z,2\n2021-01-01T00:01:50Z,1\n")
    keys = []
    for words, kind in (
        (["evt.pkl"], "nodes"),
        (["s.csv"], "spot"),
        (["c.csv"], "counts"),
        (["c.csv", "--recorded-terminations", "t.csv"], "counts"),
        (["t.csv"], "terminations"),
    ):
        done = call("trace", "stats", *words)
        assert (done.status, done.err) == (0, "")
        assert re.match(rf"kind +{kind}\nstart +20?", done.out) or kind == "spot"
        found = call("trace", "stats", *words, "--json").json
        assert found["kind"] == kind
        keys.append(list(found))
    assert all(one == keys[0] for one in keys)


def test_the_pair_of_a_trace(call, here):
    """Additions and terminations of a trace are written as measured, and read again as the trace they were of."""
    (here / "c.csv").write_text(COUNTS)
    done = call("trace", "stats", "c.csv", "--additions", "a.csv", "--terminations", "t.csv", "--json")
    assert done.status == 0
    assert (here / "a.csv").read_text() == "dt,additions\n2021-01-01T00:00:00Z,1\n"
    assert (here / "t.csv").read_text() == "dt,preemptions\n2021-01-01T00:02:00Z,2\n"
    assert done.err.endswith("--initial-nodes: 2\n")
    words = ("spot", "simulate", "--trace", "t.csv", "--additions", "a.csv", "--initial-nodes", 2, "--json")
    assert call(*words).json["node_hours_held"] == pytest.approx(2 * 3 / 60)
    assert call("trace", "stats", "t.csv", "--json").json["preemptions"] == done.json["preemptions"] == 2
    check_refusal(call("trace", "stats", "c.csv", "--additions", "a.csv"))
    assert call("trace", "stats", "c.csv", "--additions", "a.csv", "--force").status == 0


def test_the_minute_model_by_options(call):
    """Chances and sizes can be given; levels are factors of the chances given."""
    sizes = [f"--set={each}" for each in ("preemption-mean=4", "preemption-std=0", "addition-mean=3", "addition-std=0")]
    chances = [f"--set={each}" for each in ("preemption-chance=0.2", "addition-chance=0.3", "big-addition-share=0")]
    words = ("trace", "generate", "--model", "minutes", "--days", 2, *sizes, *chances, "--preemption-scale", 0.5)
    done = call(*words, "-o", "a.parquet")
    asked = {line.split()[0]: float(line.split()[1]) for line in done.out.splitlines()[2:]}
    assert asked == {
        "preemption_chance": 0.1, "addition_chance": 0.3, "big_addition_share": 0.0,
        "preemption_mean": 4.0, "regular_addition_mean": 3.0,
    }  # fmt: skip
    swept = call("spot", "sweep", *chances, *sizes, "--days", 0.05, "--repeats", 1, "--json").json["model"]
    assert (swept["preemption_chance"], swept["preemption_mean"], swept["addition_std"]) == (0.2, 4.0, 0.0)


def test_traces_are_converted(call, here):
    """What was made, and what its form loses, is said; terminations alone are no log."""
    (here / "c.csv").write_text(COUNTS)
    assert call("convert", "c.csv", "x.parquet").out == "x.parquet: node log of 3 nodes\n"
    done = call("convert", "x.parquet", "-o", "back.csv", "--to", "counts")
    assert (done.out, done.err.count("\n")) == ("back.csv: count trace of 3 nodes\n", 1)
    assert done.err.startswith("Note: back.csv: this form cannot hold which nodes they are")
    assert (here / "back.csv").read_text() == COUNTS
    assert call("convert", "x.parquet", "gone.csv", "--to", "terminations").status == 0
    check_refusal(call("convert", "gone.csv", "y.parquet"), "gone.csv: Terminations alone do not say which nodes stay.")
    check_refusal(call("convert", "evt.pkl", "y.toml"), "evt.pkl: Expected columns Tcup, ")
    check_refusal(call("convert", "JNPs.pkl", "y.toml"), "JNPs.pkl: Expected columns Tcup, ")
    check_refusal(
        call("convert", "tasks.toml", "y.csv", "--to", "spot"), "tasks.toml: Expected a node log (Parquet, CSV or"
    )


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31])
def test_what_is_no_key_is_refused(call, here, text):
    """A key has 64 hexadecimal digits."""
    (here / "key").write_text(text)
    said = "Error: key: Expected a key of 64 hexadecimal digits, got something else.\n"
    assert call("trace", "edit", "evt.pkl", "--anonymise", "key", "-o", "x.csv").err == said


def test_edits_stand_in_the_metadata(call, here):
    """The commands that made a log, in order."""
    for source, target in (("evt.pkl", "a.csv"), ("a.csv", "b.csv")):
        assert call("trace", "edit", source, "-o", target).status == 0
    edits = ["bftrainer trace edit evt.pkl -o a.csv", "bftrainer trace edit a.csv -o b.csv"]
    assert json.loads((here / "b.json").read_text())["provenance"]["edits"] == edits


def test_a_fitted_section_is_toml(call, here):
    """The section printed is what a task set takes."""
    (here / "t.csv").write_text("nodes,throughput\n1,10\n2,19\n")
    scaling = tomllib.loads("[[task]]\n" + call("tasks", "fit", "t.csv").out)["task"][0]["scaling"]
    assert scaling == {"nodes": [0, 1, 2], "throughput": [0.0, 10.0, 19.0]}
