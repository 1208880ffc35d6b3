"""Files of results and histories: they come back as they were, and nothing else is read."""

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
from bftrainer.zeus import Corrections, Group, GroupJob, HistoryEntry, Job, read_groups
from bftrainer.zeus.simulation.campaign import Simulation, SimulationResult, simulate_all
from bftrainer.zeus.simulation.files import read_history, read_simulations, write_history, write_results
from bftrainer.zeus.simulation.simulator import Run
from tests.examples import examples
from tests.recurring import PAGES, WORDS, write_world

FORMS = pytest.mark.parametrize("form", ["json", "parquet"])


def facts(results):
    """All that results say."""
    return [(result.simulation, result.runs, result.failure) for result in results]


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


@FORMS
def test_results_come_back(results, tmp_path, form):
    """Simulations, runs and failures are read as they were written, to the last bit, and written again alike."""
    path = tmp_path / f"out.{form}"
    write_results(path, results, {"inputs": {"train": None}})
    assert facts(read_simulations(path)) == facts(results)
    before = path.read_bytes()
    write_results(path, read_simulations(path), {"inputs": {"train": None}})
    assert path.read_bytes() == before


AMOUNTS = st.floats(0, 1e300)
RUNS = st.builds(
    Run,
    st.integers(0, 10**6),
    st.integers(0, 19),
    st.integers(1, 2**40),
    st.integers(1, 1000),
    st.booleans(),
    st.booleans(),
    AMOUNTS,
    st.floats(-1e300, 1e300),
    st.floats(1e-3, 1e3),
    AMOUNTS,
    AMOUNTS,
)
TIMES = st.floats(-1e9, 1e9)
GROUPS = st.builds(Group, st.text(), st.text(), st.lists(st.builds(GroupJob, TIMES, TIMES, TIMES)).map(tuple))
JOBS = st.builds(
    Job, *[st.text(min_size=1)] * 3, TIMES, st.integers(1, 1000), st.none() | st.integers(1, 2**20), command=st.none()
)
SIMULATIONS = st.builds(
    Simulation, JOBS, st.none(), GROUPS, st.text(), st.text(), st.floats(0, 1), st.floats(1e-3, math.inf)
)


@FORMS
@examples(15)
@given(st.lists(st.builds(SimulationResult, SIMULATIONS, st.lists(RUNS).map(tuple), st.none() | st.text()), max_size=3))
def test_any_results_come_back(tmp_path_factory, form, made):
    """Whatever the numbers and names."""
    path = tmp_path_factory.mktemp("any") / f"out.{form}"
    write_results(path, made)
    assert facts(read_simulations(path)) == facts(made)


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
    """The JSON file has a line for each run, energy and time as histories have them; the table has the same columns."""
    write_results(tmp_path / "out.json", results)
    write_results(tmp_path / "out.parquet", results)
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["partial"]) == (1, True)
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


def test_whole_results_are_not_partial(results, tmp_path):
    """A file is marked partial by a failure alone."""
    write_results(tmp_path / "out.json", results[:2])
    assert json.loads((tmp_path / "out.json").read_text())["partial"] is False


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


def changed(document, *path, to):
    """The document with another value at the end of a path."""
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def test_a_table_that_fits_no_simulations_is_refused(results, tmp_path):
    """Metadata may lack them, and a row may name none."""
    path = tmp_path / "out.parquet"
    write_results(path, results)
    table = pq.read_table(path)
    (key,) = table.schema.metadata
    rows = table.to_pylist()
    nameless = pa.Table.from_pylist([rows[0] | {"simulation": None}, *rows[1:]], table.schema)
    for bad in (table.replace_schema_metadata({key: b'{"schema": 1}'}), nameless):
        pq.write_table(bad, path)
        with pytest.raises(InputError, match="Expected results of simulations, got something else"):
            read_simulations(path)


RUN = ("simulations", 0, "runs", 0)
BAD = {
    "schema": (("schema",), 2, "Expected histories of recurring jobs with schema 1"),
    "text for a number": ((*RUN, "traced_energy_j"), "12", "0.runs.0.traced_energy_j: Input should be a valid number"),
    "code": ((*RUN, "batch_size"), "__import__('os').system('touch pwned')", "0.runs.0.batch_size"),
    "eta": (("simulations", 0, "eta_knob"), 2.0, "Expected eta from 0 (time) to 1 (energy), got 2.0."),
    "epochs": (("simulations", 0, "job", "max_epochs"), 0, "Expected max_epochs above 0, got 0."),
    "neither": (("simulations", 0, "recurrences"), None, "either recurrences or a group"),
    "simulations": (("simulations",), [1], "Expected results of simulations"),
}


@pytest.mark.parametrize(("path", "value", "said"), BAD.values(), ids=BAD.keys())
def test_bad_documents(results, tmp_path, path, value, said):
    """A fault is told in one line with file and place; nothing in a file is ever executed."""
    file = tmp_path / "bad.json"
    write_results(file, results)
    file.write_text(json.dumps(changed(json.loads(file.read_text()), *path, to=value)))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        read_simulations(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("reader", [read_simulations, read_history])
def test_unreadable_files(results, tmp_path, reader):
    """Files that are absent, directories, noise, cut off or about something else are refused by their names."""
    write_results(tmp_path / "whole.parquet", results)
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-30])
    pq.write_table(pa.table({"bs": [1]}), tmp_path / "other.parquet")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "noise.json").write_bytes(b"\xff\x00")
    (tmp_path / "cut.json").write_text('{"schema": 1, "history": [')
    (tmp_path / "other.json").write_text("[1, 2]")
    for name in ("absent.json", "absent.parquet", "cut.parquet", "other.parquet", "folder.json", "noise.json"):
        with pytest.raises(InputError, match=re.escape(f"{name}: ")):
            reader(tmp_path / name)
    for name in ("cut.json", "other.json"):
        with pytest.raises(InputError, match=re.escape(f"{name}: ")):
            reader(tmp_path / name)


def test_rows_of_no_simulation(results, tmp_path):
    """A row that belongs to a simulation that is not there is refused."""
    path = tmp_path / "out.parquet"
    write_results(path, results)
    table = pq.read_table(path)
    numbers = pa.array([7] * table.num_rows, pa.int64())
    pq.write_table(table.set_column(0, "simulation", numbers), path)
    with pytest.raises(InputError, match="Expected results of simulations, got something else"):
        read_simulations(path)
    pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(InputError, match="Expected histories of recurring jobs"):
        read_simulations(path)
