"""Objectives by name: registered, modified, or anybody's."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from bftrainer import plugins
from bftrainer.errors import ObjectiveError
from bftrainer.objectives import Priority, Quota, energy, get_objective, objective_names, throughput
from tests.objectives.support import credit, plain
from tests.shipped import shipped


def test_names():
    """What is shipped."""
    names = "as-given deadline energy energy-delay fair-share priority quota scaling-efficiency throughput"
    assert sorted(shipped("bftrainer.objectives") + shipped("bftrainer.objective_modifiers")) == names.split()
    assert set(objective_names()) >= set(names.split())


def test_unknown_names_get_suggestions():
    """A near miss gets the name that was meant, anything else all of them."""
    with pytest.raises(ObjectiveError, match=r"got 'as_given'\. Did you mean 'as-given'"):
        get_objective("as_given")
    with pytest.raises(ObjectiveError, match=f"Known: {', '.join(objective_names())}"):
        get_objective("money")
    with pytest.raises(ObjectiveError, match=r"got 'enery'\. Did you mean 'energy'"):
        get_objective("priority:enery")
    with pytest.raises(ObjectiveError, match=r"got 'proirity:energy-delay'\. Did you mean 'priority'"):
        get_objective("proirity:energy-delay")


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("energy", energy),
        ("priority", Priority()),
        ("priority:throughput", Priority(throughput)),
        ("priority:priority:throughput", Priority(Priority(throughput))),
        ("quota:user=16", Quota(limits={"user": "16"})),
        ("quota:user=25%,group/hpo=8:throughput", Quota(throughput, {"user": "25%", "group/hpo": "8"})),
        ("quota:group=8:priority:throughput", Quota(Priority(throughput), {"group": "8"})),
        ("priority:quota:group=8", Priority(Quota(limits={"group": "8"}))),
    ],
)
def test_modifiers_nest(name, objective):
    """What follows a modifier is the name of the objective that it modifies."""
    assert get_objective(name) == objective


def test_messages_call_modified_objectives_by_all_their_names():
    """As far as they have one."""
    assert get_objective("priority:throughput").__name__ == "priority:throughput"
    assert get_objective("quota:user=16:priority").__name__ == "quota:priority:as_given"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the current directory, which is not on the path, forgotten afterwards."""
    (tmp_path / "my_goals.py").write_text(
        "def credit(task, counts, now_s):\n    return counts * 1.0\nnumber = 3\ndef _own():\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "my_goals"
    sys.modules.pop("my_goals", None)


def test_any_callable_works(module):
    """`module:callable` is found in the current directory, which does not stay on the path; it can be modified."""
    before = list(sys.path)
    assert credit(get_objective(f"{module}:credit"), plain()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert credit(get_objective(f"priority:{module}:credit"), plain(weight=2.0)) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert sys.path == before


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("credits", "to define 'credits'. Did you mean 'credit'"),
        ("profit", "to define 'profit'. Known: credit"),
        ("number", "Expected a callable, got int"),
    ],
)
def test_what_is_not_there(module, attribute, said):
    """What a module lacks is told with what it has."""
    with pytest.raises(ObjectiveError, match=said):
        get_objective(f"{module}:{attribute}")


class Doubled:
    """A modifier of somebody else's: ``doubled:OBJECTIVE``, unless it is asked for nonsense."""

    @staticmethod
    def parse(text):
        if text == "nonsense":
            raise KeyError(text)
        return (lambda inner: lambda task, counts, now_s: 2.0 * inner(task, counts, now_s)), text


def test_other_peoples_modifiers(monkeypatch):
    """A modifier that a package registers nests like ours, and what it raises is told in one line."""
    group = "bftrainer.objective_modifiers"
    monkeypatch.setitem(plugins.entries_of(group), "doubled", (EntryPoint("doubled", f"{__name__}:Doubled", group),))
    assert credit(get_objective("priority:doubled:throughput"), plain(weight=3.0))[1:3] == [6.0, 12.0]
    with pytest.raises(ObjectiveError, match=r"objective doubled: .*KeyError: 'nonsense'"):
        get_objective("doubled:nonsense")
