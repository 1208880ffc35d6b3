"""Damaged logs of all forms: whatever happens to one record, the others are kept, and nothing is lost in silence."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from bftrainer.schedulers.busy_records import BusyRows
from bftrainer.schedulers.formats.tables import PRESETS
from bftrainer.schedulers.reading import importer_names
from bftrainer.schedulers.tally import Tally
from tests.schedulers.conformance.test_conformance import ALL, importer_of
from tests.schedulers.mutated.campaign import WILD, World, cases
from tests.schedulers.mutated.damage import MUTATIONS
from tests.schedulers.mutated.forms import FORMS


def test_every_form_is_here():
    """All importers, all presets, and all forms of the conformance suite."""
    assert tuple(sorted(set(map(importer_of, FORMS)))) == importer_names()
    assert {*PRESETS, "xdmod"} <= {found[1] for name in FORMS if (found := re.fullmatch(r"table \((\w+)\)", name))}
    written = {form.write for form in FORMS.values()}
    assert [name for name, write in ALL.items() if write not in written] == []


@pytest.mark.long
def test_some(tmp_path):
    """A hundred damaged logs: no traceback, the other records kept, and the damage read, counted or refused."""
    assert [text for *_, wrong in cases(100, 1, tmp_path) for text in wrong] == []


@pytest.mark.slow
def test_a_thousand(tmp_path):
    """So do a thousand, in which all forms suffer all kinds of damage that they can."""
    forms, mutations, faults = Counter(), Counter(), []
    for name, mutation, _, wrong in cases(1000, 2, tmp_path):
        forms[name] += 1
        mutations[mutation] += 1
        faults += wrong
    assert faults == []
    assert set(forms) == set(FORMS)
    assert set(mutations) == {*MUTATIONS, WILD}
    assert min(forms.values()) >= 10
    assert min(mutations.values()) >= 20


@pytest.mark.parametrize("name", ["alcf", "slurm", "swf"])
def test_silence_is_found(tmp_path, monkeypatch, name):
    """An importer that leaves malformed records out without counting them would not pass."""
    monkeypatch.setattr(Tally, "refuse", lambda *_: None)
    world = World(name, "1", tmp_path)
    outcome, wrong = world.suffer("scrambled", Random("1"))
    assert outcome == "changed"
    assert any("changed in silence" in text for text in wrong)


def test_a_loss_of_others_is_found(tmp_path, monkeypatch):
    """Nor would one that loses another record than the one that is damaged."""
    world = World("lsf", "1", tmp_path)
    extend = BusyRows.extend
    monkeypatch.setattr(BusyRows, "extend", lambda rows, frame: extend(rows, frame.iloc[1:].reset_index(drop=True)))
    _, wrong = world.suffer("byte_order_mark", Random("1"))
    assert any("of others are lost" in text for text in wrong)
