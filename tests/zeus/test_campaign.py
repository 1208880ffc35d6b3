"""Simulations by the dozen: what they are made of, that nothing else decides their results; files of these."""

from __future__ import annotations

import json
import math
import re
import textwrap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError, InputError, OutputError, SettingsError, TuningInputError
from bftrainer.zeus import (
    Corrections,
    HistoryEntry,
    JITPowerLimitOptimizer,
    Job,
    PruningGTSBatchSizeOptimizer,
    Simulator,
    read_groups,
)
from bftrainer.zeus.simulation.campaign import Simulation, group_seed, simulate, simulate_all, with_seeds
from bftrainer.zeus.simulation.files import read_history, write_history, write_results
from tests.examples import examples
from tests.recurring import PAGES, WORDS, write_world

HOPELESS = Job("pages", "net", "sgd", 0.5, 20, 32)


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """The trace of the small world, in whose folder the test runs."""
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def test_one_simulation_is_what_the_simulator_does(trace):
    """The published policies with one seed for all give what the simulator gives when they are passed to it."""
    for group in (None, read_groups("groups.csv")["c"]):
        policies = PruningGTSBatchSizeOptimizer(seed=9), JITPowerLimitOptimizer()
        simulator = Simulator(trace, None, *policies, seed=9, verbose=False)
        given_count = 40 if group is None else None
        result = simulate(trace, Simulation(WORDS, given_count, group, eta_knob=0.3, beta_knob=2.5, seed=9))
        if group is None:
            assert result.history == simulator.simulate_one_job(WORDS, 40, 2.5, 0.3)
        else:
            assert result.history == simulator.simulate_one_alibaba_group(WORDS, group, 2.5, 0.3)
        assert (result.failure, result.is_partial) == (None, False)


@pytest.mark.long
def test_workers_change_nothing(trace):
    """One process or three: the same results in the same order, all of them counted."""
    singles = [Simulation(WORDS, 30, policy=policy) for policy in ("zeus", "grid")]
    groups = [Simulation(PAGES, None, group, seed=3) for group in read_groups("groups.csv").values()][:2]
    simulations = [each for simulation in (*singles, *groups) for each in with_seeds(simulation, 3)]
    counted = []
    alone = simulate_all(trace, simulations, workers=1)
    shared = simulate_all(trace, simulations, workers=3, progress=counted.append)
    facts = [(result.simulation, result.runs, result.failure) for result in alone]
    for results in (shared, counted):
        assert [(result.simulation, result.runs, result.failure) for result in results] == facts
    assert [(simulation, failure) for simulation, _, failure in facts] == [(each, None) for each in simulations]


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_bad_input_is_raised(trace, workers):
    """A job that cannot start ends the campaign with its own error, in this process and in others."""
    good = Simulation(PAGES, 5)
    bad = [Simulation(Job("pages", "net", "sgd", target, 20, 8), 5) for target in (0.51, 0.52)]
    with pytest.raises(TuningInputError, match=r"target metric 0\.51\. Closest: 0\.5, 0\.6\."):
        simulate_all(trace, [good, *bad, good], workers=workers)


@pytest.mark.long
def test_policies_that_break_are_told(trace, tmp_path, monkeypatch):
    """What a user's policy raises ends its simulation in a line, with its runs; a process that dies is our error."""
    broken = "self.count += 1\n    return 8 // (self.count < 2)"
    for body, said in ((broken, None), ("import os\n    os._exit(3)", "worker process")):
        method = textwrap.indent(f"count = 0\ndef predict(self, job):\n    {body}\n", "    ")
        (tmp_path / "mine.py").write_text(
            "from bftrainer.zeus.policies.baselines import DefaultBatchSize\n"
            f"class Mine(DefaultBatchSize):\n{method}\ndef make(context):\n    return Mine()\n"
        )
        monkeypatch.delitem(__import__("sys").modules, "mine", raising=False)
        # The other process finds the policy too, and so shows that it is looked up by name there.
        simulations = with_seeds(Simulation(PAGES, 5, policy="mine:make"), 2)
        if said:
            with pytest.raises(BftrainerError, match=said):
                simulate_all(trace, simulations, workers=2)
        else:
            one, other = simulate_all(trace, simulations, workers=2)
            assert "ZeroDivisionError" in one.failure
            assert "mine:make" in one.failure
            assert len(one.runs) == len(other.runs) == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recurrences": None}, "either recurrences or a group"),
        ({"recurrences": -1}, "recurrences >= 0, got -1"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"eta_knob": math.nan}, "eta from 0"),
        ({"beta_knob": 0.0}, "beta above 0"),
    ],
)
def test_simulations_are_checked_when_made(values, said):
    """What makes no sense is refused before anything is simulated."""
    with pytest.raises((SettingsError, TuningInputError), match=said):
        Simulation(PAGES, **values)
    with pytest.raises(SettingsError, match="at least one worker"):
        simulate_all(None, [], workers=0)


def test_seeds_of_groups_are_their_own():
    """A group's seed depends on its name and the campaign's seed alone; no two of a hundred are equal."""
    seeds = {group_seed(seed, f"g{number}") for seed in (1, 2) for number in range(50)}
    assert len(seeds) == 100
    assert group_seed(1, "g7") in seeds


# --- files -------------------------------------------------------------------------------------------------------

AMOUNTS = st.floats(0, 1e300)
ENTRIES = st.builds(
    HistoryEntry, st.integers(1, 2**40), st.none() | st.integers(1, 999), AMOUNTS, st.booleans(), AMOUNTS
)


@examples(15)
@given(st.lists(ENTRIES))
def test_histories_come_back(tmp_path_factory, history):
    """A plain history comes back, also without power limits, and an empty one."""
    path = tmp_path_factory.mktemp("any") / "history.json"
    write_history(path, history)
    assert read_history(path) == history


def test_what_stands_in_a_file(trace, tmp_path):
    """The JSON file has a line for each run, to the last bit; the table has the same columns; equal bytes again."""
    corrected = Simulation(PAGES, None, read_groups("groups.csv")["a"], corrections=Corrections(True))
    failing = Simulation(HOPELESS, 5, policy="default", power_policy="max-power")
    results = simulate_all(trace, [Simulation(WORDS, 12, beta_knob=math.inf, seed=1), corrected, failing])
    for name in ("out.json", "out.parquet"):
        contents = []
        for _ in range(2):
            write_results(tmp_path / name, results, {"inputs": {"train": None}})
            contents.append((tmp_path / name).read_bytes())
        assert contents[0] == contents[1]
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["partial"], document["inputs"]) == (1, True, {"train": None})
    single, group, failed = document["simulations"]
    assert (single["beta_knob"], group["beta_knob"], failed["seed"]) == (None, 2.0, 123456)
    assert "did not converge" in failed["failure"]
    used = [(entry.energy, entry.time) for entry in results[1].history]
    assert [(row["energy_j"], row["time_s"]) for row in group["runs"]] == used
    table = pq.read_table(tmp_path / "out.parquet")
    rows = [{"simulation": n, **row} for n, each in enumerate(document["simulations"]) for row in each["runs"]]
    assert table.to_pylist() == rows
    assert (table.schema.field("power_limit_w").type, table.schema.field("reached").type) == (pa.int64(), pa.bool_())
    with pytest.raises(OutputError, match=r"a name that ends in \.json or \.parquet"):
        write_results(tmp_path / "runs.csv", [])
    assert not (tmp_path / "runs.csv").exists()


def test_what_is_no_history(tmp_path):
    """Refused in one line with file and place; nothing in a file is ever executed."""
    path = tmp_path / "bad.json"
    entry = {"bs": 8, "pl": None, "energy": 1.0, "reached": True, "time": 2.0}
    code = "__import__('os').system('touch pwned')"
    for document, message in (
        ([1, 2], "Expected a history of schema 1"),
        ({"schema": 2, "history": []}, "Expected a history of schema 1"),
        ({"schema": 1, "history": [entry | {"energy": "12"}]}, "energy"),
        ({"schema": 1, "history": [entry | {"bs": code}]}, "bs"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(InputError, match=re.escape(message)) as caught:
            read_history(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
