"""Whole simulations give what the published simulator gives, save for the rows of one table."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from bftrainer.errors import TuningError
from bftrainer.zeus import TrainingTrace, read_groups
from tests.zeus.deviations import DEVIATIONS, deviation
from tests.zeus.fingerprint import fingerprint
from tests.zeus.golden import DATA, Answer, by_inputs, load

TINY = dict(by_inputs(load(DATA / "tiny.json.xz")["cases"], "mode", "default_bs"))


@cache
def tiny():
    """The traces and groups made by hand."""
    return TrainingTrace(DATA / "tiny_train.csv", DATA / "tiny_power.csv"), read_groups(DATA / "tiny_groups.csv")


@pytest.fixture(scope="module")
def zeus(published):
    """Folder of the traces published with Zeus, and of what the published simulator answers on them."""
    folder = published.parent / "zeus"
    if not folder.is_dir():
        pytest.skip(f"no published traces at {folder}")
    return folder


@pytest.fixture(scope="module")
def published_traces(zeus):
    """The published traces and the synthetic groups."""
    traces = TrainingTrace(zeus / "summary_train.csv", zeus / "summary_power_v100.csv")
    return traces, read_groups(zeus / "alibaba_groups_synth.csv.gz")


def unlike(traces, case):
    """What differs on a case, if it is not what the table says."""
    answer = Answer(*traces, case)
    published = case["error"]["type"] if case["error"] else None
    row = deviation(str(case["inputs"].get("policy_kwargs")), published)
    differs = set(answer.differences())
    if row is None:
        return differs, None
    if "observations" in row.parts and not answer.observed_alike():
        differs.add("what was observed before the recording was cut off")
    ours = type(answer.error).__name__ if answer.error else "no exception"
    other_end = {ours, row.ours} if ours != row.ours else set()
    return (differs ^ row.parts) | other_end, row


@pytest.mark.long
@pytest.mark.parametrize("cases", TINY.values(), ids=TINY)
def test_traces_made_by_hand(cases):
    """Choices, exceptions, draws and end states are the published ones; energy and time agree to 1e-9; no deviation."""
    found = {str(case["inputs"]): unlike(tiny(), case) for case in cases}
    assert {where: differs for where, (differs, _) in found.items() if differs} == {}
    assert all(row is None for _, row in found.values())


@pytest.mark.long
def test_traces_made_by_hand_to_the_bit():
    """Energies, times and the costs that policies are told are not only close to the published ones, but equal."""
    entries = 0
    for case in (case for cases in TINY.values() for case in cases):
        answer = Answer(*tiny(), case)
        assert [entry[1] for entry in answer.policy.observations] == [entry[1] for entry in case["observations"]]
        ours = [(entry.energy, entry.time) for entry in answer.history or ()]
        assert ours == [(row[2], row[4]) for row in case["history"] or ()]
        entries += len(ours)
    assert entries > 20_000


def test_all_cases_made_by_hand_are_compared():
    """864 simulations: 576 of single jobs and 288 of groups, 330 of which end in an exception."""
    cases = [case for group in TINY.values() for case in group]
    assert Counter(case["inputs"]["mode"] == "single" for case in cases) == {True: 576, False: 288}
    assert sum(case["error"] is not None for case in cases) == 330


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [("single_v100", 144), ("alibaba_v100", 366)])
def test_published_traces(zeus, published_traces, name, count):
    """As on the traces made by hand; each row of the table that is about groups does deviate."""
    cases = load(zeus / f"{name}.json.gz")["cases"]
    found = {str(case["inputs"]): unlike(published_traces, case) for case in cases}
    assert len(found) == len(cases) == count
    assert {where: differs for where, (differs, _) in found.items() if differs} == {}
    deviating = Counter(row.where for _, row in found.values() if row)
    about_groups = [row.where for row in DEVIATIONS if row.where.startswith("{")]
    assert sorted(deviating) == (sorted(about_groups) if name == "alibaba_v100" else [])


def test_endless_groups_end(zeus, published_traces):
    """The three groups on which the published simulator never returns end in an error that holds the runs so far."""
    endless = [
        case
        for case in load(zeus / "alibaba_v100.json.gz")["cases"]
        if case["error"] and case["error"]["type"] == "Hang"
    ]
    assert len(endless) == 3
    for case in endless:
        error = Answer(*published_traces, case).error
        assert isinstance(error, TuningError)
        assert len(error.history) > 100


def test_paths_and_frames_give_the_same_bits():
    """Files, frames of their text and frames as pandas parses them: one digest per trace, of thousands of entries."""
    digests = fingerprint()
    for name in ("tiny", "embedded"):
        ((_, entries),) = {value for key, value in digests.items() if key.startswith(name)}
        assert entries > 2000
