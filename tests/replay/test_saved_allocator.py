"""An allocator that is saved and loaded decides as if it had never stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.errors import ResumeError
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model import Event, ScalingCurve, TaskSpec
from bftrainer.objectives import as_given
from bftrainer.replay import Allocator, Settings
from bftrainer.runs import ReplayConfig, load_inputs


def task(name: str) -> TaskSpec:
    """A task of up to four nodes."""
    return TaskSpec(name, min_nodes=1, max_nodes=4, work=1e3, scaling=ScalingCurve.linear(1.0, 4))


def new(**settings: float) -> Allocator:
    """An allocator of two tasks."""
    return Allocator([task("a"), task("b")], Settings(objective=as_given, solver="dp", **settings))


EVENTS = [
    (Event.join(0.0, "n1", "n2", "n3"),),
    (Event.submission(5.0, task("c")), Event.join(5.0, "n4", "n5")),
    (Event.leave(9.0, "n2"),),
    (Event.completion(20.0, "a"),),
    (Event.join(30.0, "n2", "n6"), Event.power_cap(30.0, 5.0)),
]


@pytest.mark.parametrize("after", range(len(EVENTS)))
def test_it_goes_on(tmp_path: Path, after: int) -> None:
    """Nodes and tasks that came meanwhile are known, with progress and owners."""
    whole, first, second = new(), new(), new()
    for events in EVENTS[:-1]:
        whole.on_event(*events)
    for events in EVENTS[:after]:
        first.on_event(*events)
    first.save(tmp_path / "state")
    second.load(tmp_path / "state")
    for events in EVENTS[after:-1]:
        second.on_event(*events)
    assert second.node_names == whole.node_names
    assert second.state.owner.tolist() == whole.state.owner.tolist()
    assert second.state.progress.tolist() == whole.state.progress.tolist()
    one, other = (each.on_event(Event.leave(40.0, "n1")) for each in (second, whole))
    assert (one.tasks, one.after, one.added, one.removed) == (other.tasks, other.after, other.added, other.removed)


def test_in_another_process(tmp_path: Path) -> None:
    """What one process has saved another one loads."""
    allocator = new()
    allocator.on_event(*EVENTS[0])
    allocator.save(tmp_path / "state")
    lines = (
        "import sys; from tests.replay.test_saved_allocator import new",
        "allocator = new(); allocator.load(sys.argv[1]); print(allocator.node_names, allocator.state.counts.tolist())",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path / "state")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"{allocator.node_names} {allocator.state.counts.tolist()}\n", "")


def test_what_a_tuner_has_learnt_is_kept(tmp_path: Path) -> None:
    """Later runs are chosen as if nothing had happened."""
    inputs = load_inputs(ReplayConfig(tasks=sample_path(SAMPLE_TUNED_TASKS), solver="dp"))
    assert inputs.tuning is not None
    made = [Allocator(inputs.tasks, inputs.settings, (), 0, inputs.tuning.tuner()) for _ in range(2)]
    nodes = [f"n{number}" for number in range(60)]
    made[0].on_event(Event.join(0.0, *nodes))
    made[0].save(tmp_path / "state")
    made[1].load(tmp_path / "state")
    for time_s in (5e3, 5e4, 2e5, 1e6):
        completed = [
            made[0].state.specs[number].name
            for number, rate in zip(made[0].state.active.tolist(), made[0].state.rate.tolist(), strict=True)
            if rate > 0
        ]
        decisions = [each.on_event(Event.completion(time_s, *completed)) for each in made]
        assert repr(decisions[0].batch_sizes) == repr(decisions[1].batch_sizes)
        assert (decisions[0].after, decisions[0].added) == (decisions[1].after, decisions[1].added)
    assert made[0].tuners[0].attempts == made[1].tuners[0].attempts


def test_states_of_others_are_refused(tmp_path: Path) -> None:
    """Of other settings or tasks, of another user, or none at all; the allocator is as it was then."""
    allocator = new()
    allocator.on_event(*EVENTS[0])
    allocator.save(tmp_path / "state")
    other = new(forward_time_s=99.0)
    with pytest.raises(ResumeError, match="of the same settings, tasks and tuner"):
        other.load(tmp_path / "state")
    assert other.node_names == []
    with pytest.raises(ResumeError, match="Expected a saved state, found none"):
        new().load(tmp_path / "absent")
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(content[:-1] + b"x")
    with pytest.raises(ResumeError, match="Not written by this user on this machine, damaged, or of another run"):
        new().load(tmp_path / "state")
