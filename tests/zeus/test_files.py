"""Files of results and histories: what stands in them, and what is no history."""

from __future__ import annotations

import json
import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import InputError, OutputError
from bftrainer.zeus import Corrections, HistoryEntry, Job, read_groups
from bftrainer.zeus.simulation.campaign import Simulation, simulate_all
from bftrainer.zeus.simulation.files import read_history, write_history, write_results
from tests.examples import examples
from tests.recurring import PAGES, WORDS, write_world


@pytest.fixture
def results(tmp_path):
    """A job, a group and a failure."""
    trace = write_world(tmp_path)
    group = read_groups(tmp_path / "groups.csv")["a"]
    bad = Job("pages", "net", "sgd", 0.5, 20, 32)
    return simulate_all(
        trace,
        [
            Simulation(WORDS, 12, beta_knob=math.inf, seed=1),
            Simulation(PAGES, None, group, corrections=Corrections(group_never_ran_cost=True)),
            Simulation(bad, 5, policy="default", power_policy="max-power"),
        ],
    )


AMOUNTS = st.floats(0, 1e300)


@examples(15)
@given(
    st.lists(
        st.builds(HistoryEntry, st.integers(1, 2**40), st.none() | st.integers(1, 999), AMOUNTS, st.booleans(), AMOUNTS)
    )
)
def test_histories_come_back(tmp_path_factory, history):
    """A plain history comes back, also without power limits, and an empty one."""
    path = tmp_path_factory.mktemp("any") / "history.json"
    write_history(path, history)
    assert read_history(path) == history


def test_what_stands_in_a_file(results, tmp_path):
    """The JSON file has a line for each run, to the last bit; the table has the same columns; equal bytes again."""
    for name in ("out.json", "out.parquet"):
        write_results(tmp_path / name, results, {"inputs": {"train": None}})
        before = (tmp_path / name).read_bytes()
        write_results(tmp_path / name, results, {"inputs": {"train": None}})
        assert (tmp_path / name).read_bytes() == before
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["partial"], document["inputs"]) == (1, True, {"train": None})
    single, group, failed = document["simulations"]
    assert (single["beta_knob"], group["beta_knob"], failed["seed"]) == (None, 2.0, 123456)
    assert "did not converge" in failed["failure"]
    assert [(row["energy_j"], row["time_s"]) for row in group["runs"]] == [
        (entry.energy, entry.time) for entry in results[1].history
    ]
    assert {row["runtime_ratio"] for row in group["runs"]} == {1.0, 2.0, 0.5}
    table = pq.read_table(tmp_path / "out.parquet")
    rows = [{"simulation": n, **row} for n, each in enumerate(document["simulations"]) for row in each["runs"]]
    assert table.to_pylist() == rows
    assert table.schema.field("power_limit_w").type == pa.int64()
    assert table.schema.field("reached").type == pa.bool_()
    write_results(tmp_path / "whole.json", results[:2])
    assert json.loads((tmp_path / "whole.json").read_text())["partial"] is False


def test_other_suffixes_are_refused(tmp_path):
    """A name has to say what is written."""
    for name in ("runs.py", "runs", "runs.csv"):
        with pytest.raises(OutputError, match=r"a name that ends in \.json or \.parquet"):
            write_results(tmp_path / name, [])
        assert not (tmp_path / name).exists()


def test_an_existing_file_survives_a_failure(tmp_path):
    """What cannot be written leaves the earlier file as it was."""
    path = tmp_path / "history.json"
    write_history(path, [])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_history(path, [HistoryEntry(8, 100, math.nan, True, 1.0)])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["history.json"]


def test_what_is_no_history(tmp_path):
    """Refused in one line with file and place; nothing in a file is ever executed."""
    path = tmp_path / "bad.json"
    entry = {"bs": 8, "pl": None, "energy": 1.0, "reached": True, "time": 2.0}
    code = "__import__('os').system('touch pwned')"
    for document, message in (
        ([1, 2], "Expected a history of schema 1"),
        ({"schema": 2, "history": []}, "Expected a history of schema 1"),
        ({"schema": 1}, "Expected a history of schema 1"),
        ({"schema": 1, "history": [entry | {"energy": "12"}]}, "energy"),
        ({"schema": 1, "history": [entry | {"bs": code}]}, "bs"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            read_history(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()
