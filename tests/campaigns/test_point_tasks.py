"""Tasks that a sweep changes or generates: what is changed, that runs say so, and that nothing is computed twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bftrainer import run_replay
from bftrainer.audit import audit
from bftrainer.campaigns import sweep as module
from bftrainer.campaigns.engines import LocalEngine
from bftrainer.campaigns.point_tasks import TaskChanges
from bftrainer.campaigns.sweep import run_sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import SettingsError, SweepError
from bftrainer.files.opening import SAMPLE_TASKS, SAMPLE_TUNED_TASKS, sample_path
from bftrainer.runs.finished import read_summary
from bftrainer.tasksets import AssumedScaling, ScalingModel, TaskSet, read_task_set
from bftrainer.tasksets.task_generator import generate_tasks

HEAD = 'schema = 1\n[base]\nsolver = "dp"\nbaseline = false\nmax_events = 40\n'


def swept(tmp_path, text, name="out", **how):
    """Run a sweep of a file with this text."""
    path = tmp_path / "sweep.toml"
    path.write_text(HEAD + text)
    return run_sweep(read_sweep(path), tmp_path / name, LocalEngine(1), **how)


@pytest.fixture(scope="module")
def sample():
    """The 40 tasks of the embedded sample."""
    return read_task_set(sample_path(SAMPLE_TASKS))


def test_each_change_changes_what_it_names(sample):
    """Most nodes are replaced, both costs and the work multiplied; all else stays."""
    made = TaskChanges(max_nodes=8, cost_scale=5.0, work_scale=0.5).made(sample)
    assert len(made) == 40
    for task, old in zip(made, sample.tasks, strict=True):
        assert (task.max_nodes, task.work) == (8, old.work / 2)
        assert (task.grow_cost_s, task.shrink_cost_s) == (5 * old.grow_cost_s, 5 * old.shrink_cost_s)
        assert (task.name, task.min_nodes, task.scaling, task.submit_s) == (
            *(old.name, old.min_nodes, old.scaling),
            old.submit_s,
        )


@pytest.mark.parametrize("count", [1, 39, 40, 41, 95])
def test_a_count_takes_the_first_tasks_and_then_copies(sample, count):
    """So many tasks, each name once; beyond the last one they begin again from the first, submitted as that."""
    made = TaskChanges(count=count).made(sample)
    assert len({task.name for task in made}) == len(made) == count
    assert made[:40] == sample.tasks[:count]
    for place, task in enumerate(made[40:], start=40):
        old = sample.tasks[place % 40]
        assert (task.name, task.submit_s, task.work) == (f"{old.name}+{place // 40}", old.submit_s, old.work)


def test_a_scenario_is_what_the_generator_makes():
    """The tasks of `bftrainer tasks generate` with seed 0, and then changed."""
    made = TaskChanges(scenario="nas", count=20, cost_scale=2.0).made(TaskSet(()))
    plain = generate_tasks("nas", 20, np.random.default_rng(0))
    assert [task.scaling for task in made] == [task.scaling for task in plain]
    assert [task.grow_cost_s for task in made] == [2 * task.grow_cost_s for task in plain]


def test_runs_say_what_was_changed_and_are_replays_of_that(tmp_path, sample):
    """The summary names a file of the sweep's and the changes; figures are those of changed tasks; audit agrees."""
    result = swept(tmp_path, "[grid]\ncost_scale = [1, 5]\nmax_nodes = [16]\n")
    varied = [dict(each.point.varied) for each in result.points]
    assert varied == [{"cost_scale": scale, "max_nodes": 16} for scale in (1, 5)]
    for each, changes in zip(result.points, ({"max_nodes": 16}, {"max_nodes": 16, "cost_scale": 5}), strict=True):
        run = tmp_path / "out" / "runs" / each.point.key
        tasks = read_summary(run)["inputs"]["tasks"]
        assert tasks["changes"] == changes
        assert "max_nodes-16" in tasks["path"]
        alone = run_replay(
            tasks=TaskChanges(**changes).made(sample), solver="dp", baseline=False, max_events=40
        ).summary()
        assert each.figures["work_done"] == alone["work_done"] > 0
        assert audit(run).failed == []
    assert result.points[0].figures["work_done"] > result.points[1].figures["work_done"]


def test_resuming_computes_no_changed_task_set_again(tmp_path, monkeypatch):
    """A sweep of changed tasks goes on where it was, also with a further point."""
    swept(tmp_path, "[grid]\nwork_scale = [0.5, 2]\n")
    calls = []
    monkeypatch.setattr(module, "run_replay", lambda **options: calls.append(1) or run_replay(**options))
    result = swept(tmp_path, "[grid]\nwork_scale = [0.5, 2, 3]\n", resume=True)
    assert (len(calls), [each.was_done for each in result.points]) == (1, [True, True, False])


def test_computing_anew_drops_task_sets_of_other_points(tmp_path):
    """With `force` the files of changed tasks are those of the points."""
    swept(tmp_path, "[grid]\ncount = [2, 3]\n")
    swept(tmp_path, '[grid]\ncount = [3]\nscenario = ["hpo"]\n', force=True)
    (left,) = (tmp_path / "out" / "tasks").iterdir()
    assert left.name.startswith("scenario-hpo-count-3-")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("max_nodes = [0]", "Expected max_nodes >= 1, got 0"),
        ("max_nodes = [100]", r"max_nodes within the scaling curve \(to 64\), got 100 \(task J00000-AlexNet\)"),
        ("cost_scale = [-1]", "Expected a finite cost_scale >= 0, got -1"),
        ("work_scale = [0]", "Expected a finite work_scale > 0, got 0"),
        ("work_scale = [nan]", "Expected a finite work_scale > 0, got nan"),
        ("count = [0]", "Expected count >= 1 and <= 1,000,000, got 0"),
        ("count = [1.5]", "count: .*got 1.5"),
        ('scenario = ["x"]', "scenario: .*got 'x'"),
        ('scenario = ["hpo"]\ntasks = ["a.toml"]', "Give scenario or tasks, not both"),
    ],
)
def test_bad_values_are_one_line_and_nothing_is_made(tmp_path, line, fault):
    """The message names file and line; there is no directory."""
    with pytest.raises(SweepError, match=rf"^\S*sweep.toml: line \d+: .*{fault}") as error:
        swept(tmp_path, f"[grid]\n{line}\n")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_tasks_without_work_or_scaling_of_their_own_are_refused(sample):
    """Tuned tasks have epochs, which no factor changes; assumed scaling would no longer be marked as such."""
    with pytest.raises(SettingsError, match="tuned ones, which have epochs"):
        TaskChanges(work_scale=2.0).made(read_task_set(sample_path(SAMPLE_TUNED_TASKS)))
    assumed = AssumedScaling(ScalingModel(), tasks=3, total=40, is_default=True)
    with pytest.raises(SettingsError, match="that have a scaling, got linear from 1 work/s on one node for 3 of 40"):
        TaskChanges(cost_scale=2.0).made(replace(sample, assumed_scaling=assumed))


def test_changed_tasks_are_learned_all_the_same(tmp_path):
    """Decisions learn the curves of changed and of generated tasks, with the noise of each seed."""
    base, grid = 'scaling = "learned"\n', "[grid]\nseed = [1, 2]\n"
    texts = {
        "changed": f"{base}{grid}max_nodes = [4]\n",
        "generated": f'{base}{grid}scenario = ["nas"]\ncount = [5]\n',
        "both in the grid": f'{grid}scenario = ["nas"]\ncount = [5]\nscaling = ["learned"]\n',
    }
    for name, text in texts.items():
        result = swept(tmp_path, text, name)
        summaries = [read_summary(tmp_path / name / "runs" / point.point.key) for point in result.points]
        assert [each["settings"]["scaling"] for each in summaries] == ["learned", "learned"]
        assert summaries[0]["learned_error"] != summaries[1]["learned_error"]


def test_costs_that_do_not_count_are_not_scaled(sample):
    """Tasks that save pay for saves and restarts, whatever growing and shrinking would cost."""
    saving = TaskSet(tuple(replace(task, checkpoint_s=5.0) for task in sample.tasks))
    with pytest.raises(SettingsError, match="Expected a cost_scale of tasks with grow and shrink costs, got some that"):
        TaskChanges(cost_scale=5.0).made(saving)
    assert TaskChanges(max_nodes=4).made(saving)[0].checkpoint_s == saving.tasks[0].checkpoint_s


def test_tasks_that_say_themselves_what_is_learned_are_not_changed(tmp_path):
    """The file of changed tasks could not say it, so that decisions would know what they are to learn."""
    task = '[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1e4\n[task.scaling]\nmodel = "learned"\n'
    (tmp_path / "tasks.toml").write_text(f"schema = 1\n{task}")
    with pytest.raises(SweepError, match=r"line 9: Expected given curves where a sweep changes tasks"):
        swept(tmp_path, 'tasks = "tasks.toml"\nscaling = "linear"\n[grid]\nmax_nodes = [2]\n')
