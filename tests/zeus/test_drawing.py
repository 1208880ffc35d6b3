"""Figures of results: which files there are, what stands in them, and what is refused beforehand."""

from __future__ import annotations

import sys

import pytest

from bftrainer.errors import OutputError, SettingsError
from bftrainer.report.drawing import FORMS
from bftrainer.zeus import Job
from bftrainer.zeus.simulation.campaign import Simulation, simulate_all, with_seeds
from bftrainer.zeus.simulation.figures import draw_figures, plan_figures
from tests.recurring import PAGES, WORDS, write_world
from tests.tiny import contents

pytest.importorskip("matplotlib")


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """The trace of the small world, in whose folder the test runs."""
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path)


def drawn(trace, folder, simulations, form="svg", fronts=True, force=False):
    """Simulate and draw; names of what was written."""
    plan = plan_figures(folder, form, simulations, fronts=fronts, force=force)
    return [str(path.relative_to(folder)) for path in draw_figures(plan, trace, simulate_all(trace, simulations))]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_two_figures_a_job(trace, tmp_path, form):
    """Each job has its regret and its front, in the format asked for; the same results give the same bytes."""
    simulations = [each for job in (PAGES, WORDS) for each in with_seeds(Simulation(job, 8), 2)]
    names = drawn(trace, tmp_path / "new" / "figures", simulations, form)
    stems = ("pages-net-sgd-0.5", "words-net-adam-0.9")
    assert names == [f"{kind}-{stem}.{form}" for stem in stems for kind in ("regret", "pareto")]
    before = contents(tmp_path / "new" / "figures")
    magic = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[form]
    assert all(content.startswith(magic) for content in before.values())
    drawn(trace, tmp_path / "new" / "figures", simulations, form, force=True)
    assert contents(tmp_path / "new" / "figures") == before


def test_jobs_of_one_name(trace, tmp_path):
    """Jobs that differ in their epochs alone have files of their own, whatever characters their names have."""
    other = Job(**PAGES.to_dict() | {"max_epochs": 30})
    names = drawn(trace, tmp_path / "figures", [Simulation(PAGES, 5), Simulation(other, 5)], fronts=False)
    assert names == ["regret-pages-net-sgd-0.5.svg", "regret-pages-net-sgd-0.5-2.svg"]
    odd = Simulation(Job("a/../b", "n w", "ü", 0.5, 9, 8), 1)
    plan = plan_figures(tmp_path, "svg", [odd], fronts=False, force=False)
    assert plan[odd.job]["regret"] == tmp_path / "regret-a-..-b-n-w-ü-0.5.svg"


def test_failures_leave_out_what_they_lack(trace, tmp_path):
    """A failed simulation has no curve of regret, but its path; a target out of reach has no figure."""
    bad = Simulation(Job(**PAGES.to_dict() | {"default_bs": 32}), 5)
    assert drawn(trace, tmp_path / "one", [bad]) == ["pareto-pages-net-sgd-0.5.svg"]
    hopeless = Simulation(Job(**PAGES.to_dict() | {"max_epochs": 2}), 5)
    assert drawn(trace, tmp_path / "two", [hopeless]) == []


@pytest.mark.long
def test_what_is_in_the_way(trace, tmp_path):
    """Existing figures and files in the directory's place are refused beforehand."""
    simulations = [Simulation(PAGES, 5)]
    drawn(trace, tmp_path / "figures", simulations)
    with pytest.raises(OutputError, match=r"regret-pages-net-sgd-0\.5\.svg: .*--force"):
        plan_figures(tmp_path / "figures", "svg", simulations, fronts=True, force=False)
    (tmp_path / "link").symlink_to("absent")
    for place in ("train.csv", "train.csv/figures", "link"):
        with pytest.raises(OutputError, match="Expected a directory or nothing, found a file"):
            plan_figures(tmp_path / place, "svg", simulations, fronts=True, force=True)


def test_without_matplotlib(monkeypatch, tmp_path):
    """What is missing is told before anything is simulated, with how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingsError, match=r"no matplotlib here.*\[report\]"):
        plan_figures(tmp_path / "figures", "svg", [Simulation(PAGES, 5)], fronts=True, force=False)
