"""Runs whose decisions learn curves: what they report, which tasks are learnt, and what does not go with it."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import InvalidTaskError, SettingsError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.report.glossary import format_value, learning_in_words
from bftrainer.runs import ReplayConfig, load_inputs, run_replay, write_run
from tests.replayed import node_log

HEAD = '[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1e4\n'
LEARNED = '[task.scaling]\nmodel = "learned"\n'
GIVEN = "[task.scaling]\nnodes = [0, 1, 4]\nthroughput = [0, 10.0, 15.0]\n"


@pytest.fixture
def files(tmp_path):
    """A log, and a function that writes a task set."""

    def tasks(*sections):
        text = "".join(HEAD.replace('"a"', f'"{name}"') + section for name, section in sections)
        (tmp_path / "tasks.toml").write_text(f"schema = 1\n{text}")
        return {"node_log": node_log(tmp_path), "tasks": tmp_path / "tasks.toml", "solver": "dp", "baseline": False}

    return tasks


def test_what_was_learnt_is_reported(files, tmp_path):
    """The summary tells tasks, probes and errors; beliefs are in a file; throughputs of the true curve are booked."""
    given = files(("a", GIVEN), ("b", GIVEN))
    result = run_replay(**given, scaling="learned", profile_noise=0.0)
    summary = result.summary()
    assert (summary["learned_tasks"], summary["settings"]["scaling"]) == (2, "learned")
    assert summary["settings"]["profile_noise"] == 0.0
    assert summary["learned_error_used"] < 1e-3
    assert summary["learned_error"] < 1.0
    text = learning_in_words(summary)
    assert text.startswith(f"curves of 2 of 2 tasks, in {summary['learned_probes']} probes; error at the end ")
    assert text.endswith(f"% where tasks ran, {format_value(summary['learned_error'], 'share')} over all counts")
    write_run(result, tmp_path)
    beliefs = pq.read_table(tmp_path / "beliefs.parquet")
    assert beliefs.column_names == ["event", "task", "nodes", "throughput"]
    assert set(beliefs["task"].to_pylist()) == {"a", "b"}
    assert np.isfinite(beliefs["throughput"].to_numpy()).all()


def test_without_the_option_nothing_is_said_of_it(files, tmp_path):
    """No key of the summary, no setting, no file."""
    result = run_replay(**files(("a", GIVEN)))
    assert not [key for key in result.summary() if "learned" in key]
    assert learning_in_words(result.summary()) is None
    assert "profile_noise" not in result.summary()["settings"]
    write_run(result, tmp_path)
    assert not (tmp_path / "beliefs.parquet").exists()


def test_noise_is_drawn_from_the_seed(files):
    """The same seed gives the same beliefs, another one others."""
    given = files(("a", GIVEN), ("b", GIVEN))

    def learnt(seed):
        beliefs = run_replay(**given, scaling="learned", profile_noise=0.2, seed=seed).recording.beliefs
        return beliefs["throughput"].tolist()

    assert learnt(1) == learnt(1) != learnt(2)


def test_a_task_set_says_which_curves_are_learnt(files):
    """Of two tasks one has its curve, and the law is the hidden truth of the other."""
    given = files(("a", GIVEN), ("b", LEARNED))
    inputs = load_inputs(ReplayConfig(**given, scaling="amdahl:0.9"))
    assert inputs.learned == ("b",)
    result = run_replay(inputs=inputs)
    assert set(result.recording.beliefs["task"].names) == {"b"}
    assert [round(task.spec.scaling.at(4), 6) for task in result.recording.tasks] == [15.0, 3.076923]


def test_there_must_be_a_curve_to_hide(files):
    """Without one, there is nothing to simulate; tuned tasks are refused too, which their settings scale."""
    for scaling in (None, "learned"):
        with pytest.raises(InvalidTaskError, match=r"toml, task b: Expected a truth to replay for a learned curve"):
            load_inputs(ReplayConfig(**files(("a", GIVEN), ("b", LEARNED)), scaling=scaling))
    with pytest.raises(InvalidTaskError, match=r"Expected curves for --scaling learned to hide; -scfn names them."):
        load_inputs(ReplayConfig(**files(("a", "")), scaling="learned"))
    with pytest.raises(SettingsError, match="Expected no tuned task among those whose curves are learned"):
        load_inputs(ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), scaling="learned"))
