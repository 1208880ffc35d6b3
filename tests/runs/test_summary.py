"""The summary of a whole small run, worked out by hand, and what else a result shows of itself.

The world of `tests.tiny`: J0 (50 work) takes the two nodes a, b at 0 s; at 10 s c and d go to J1, whose start is free,
rather than to J0, whose growth costs; at 25 s J0 is done and J1 grows from 2 to 4 nodes, which costs 2 s at 2 work/s;
at 30 s it loses two nodes, which costs 1 s at 4 work/s; the log ends at 40 s.
"""

import re
from html import unescape

import pytest

from bftrainer import RunResult, run_replay
from bftrainer.report.glossary import headline
from tests.test_determinism import bare
from tests.tiny import write_inputs


@pytest.fixture
def result(tmp_path) -> RunResult:
    write_inputs(tmp_path)
    return run_replay(
        node_log=tmp_path / "evt.pkl", tasks=tmp_path / "Jbnd.pkl", solver="dp", max_tasks=2, large_idle=4
    )


def test_summary_by_hand(result):
    """Each figure of the run."""
    expected = {
        "end_reason": "window_end",
        "window_s": 40.0,
        "nodes_total": 4,
        "events": 4,
        "decisions": 4,
        "decisions_optimal": 4,
        "idle_node_s": 120.0,
        "eq_nodes": 3.0,
        "used_node_s": 120.0,
        "occupancy": 1.0,
        "work_done": 20.0 + 60.0 + (20.0 - 4.0 - 4.0) + 20.0,
        "rescale_loss_work": 4.0,
        "rescale_loss_share": 4 / 120,
        "preemption_loss_work": 4.0,
        "preemption_loss_share": 4 / 120,
        "return_on_investment": 112 / 116,
        "efficiency": 112 / 120,  # three dedicated nodes do 3 work/s: nothing is lost when J0 hands over to J1
        "efficiency_horizon_s": 40.0,
        "tasks_total": 2,
        "tasks_started": 2,
        "tasks_completed": 1,
        "makespan_s": 25.0,
        "turnaround_mean_s": 25.0,
        "wait_mean_s": 5.0,
        "preemptions": 1,
        "rescales": 1,
    }
    summary = result.summary()
    assert {name: summary[name] for name in expected} == pytest.approx(expected)


def test_summary_without_details(result):
    """A run without details has the same summary, but for what clocks tell, and no lists."""
    brief = run_replay(inputs=result.inputs, details=False)
    assert bare(brief.summary()) == bare(result.summary())
    assert not len(brief.recording.allocation)
    assert {decision.tasks + decision.before + decision.after for decision in brief.recording.decisions} == {()}
    assert {decision.after for decision in result.recording.decisions} != {()}


def test_below_large_idle_by_hand(result):
    """Fewer than 4 nodes are idle in the first and the last 10 s: 2 nodes, both used, nothing lost."""
    assert result.summary()["below_large_idle"] == {
        "large_idle": 4,
        "time_share": 0.5,
        "idle_node_s_share": 40 / 120,
        "idle_node_s": 40.0,
        "eq_nodes": 2.0,
        "used_node_s": 40.0,
        "occupancy": 1.0,
        "work_done": 40.0,
        "rescale_loss_work": 0.0,
        "rescale_loss_share": 0.0,
        "preemption_loss_work": 0.0,
        "preemption_loss_share": 0.0,
        "return_on_investment": 1.0,
    }


def test_tasks_by_hand(result):
    """What each task did, held, paid and waited for."""
    first, second = result.recording.tasks
    assert (first.started_s, first.completed_s, first.work_done, first.node_s) == (0.0, 25.0, 50.0, 50.0)
    assert (second.started_s, second.completed_s, second.work_done) == (10.0, None, 62.0)
    assert second.node_s == 15 * 2 + 5 * 4 + 10 * 2
    assert (second.rescales, second.preemptions) == (1, 1)
    assert (second.rescale_cost, second.preemption_cost) == (4.0, 4.0)


def test_the_facade_takes_objects(result):
    """A log and tasks that were made or read elsewhere are replayed like files, whose paths may be plain text."""
    from bftrainer.nodelogs import read_node_log
    from bftrainer.tasksets import read_task_set

    paths = [result.inputs.sources[name]["path"] for name in ("node_log", "tasks")]
    assert run_replay(node_log=paths[0], tasks=paths[1], solver="dp").recording.events == result.recording.events
    again = run_replay(node_log=read_node_log(paths[0]), tasks=read_task_set(paths[1]).tasks, solver="dp", max_tasks=2)
    assert again.recording.events == result.recording.events
    assert again.inputs.sources["node_log"] is None


@pytest.fixture(scope="module")
def shown():
    """A short replay of the sample."""
    return run_replay(solver="dp", baseline=False, max_events=60, command="bftrainer-replay --made <b>up</b>")


def test_a_notebook_shows_the_brief(shown, monkeypatch):
    """Headline, figures and both pictures, without scripts or requests, in a frame that keeps its style to itself."""
    (content,) = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', shown._repr_html_()).groups()
    page = unescape(content)
    text = unescape(re.sub(r"<[^>]+>", "", page))
    assert headline(shown.summary()) in text
    assert "occupancy" in text
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert all(link.startswith("#") for link in re.findall(r' (?:src|href|xlink:href)="([^"]*)"', page))
    assert shown._repr_html_() == shown._repr_html_()
    monkeypatch.setattr("bftrainer.plugins.find_spec", lambda _: None)
    assert shown._repr_html_() is None  # without the libraries of pages it shows what a prompt does


def test_a_prompt_shows_a_sentence(shown):
    """And not all that was recorded."""
    assert repr(shown) == f"<RunResult: {headline(shown.summary())}>"
