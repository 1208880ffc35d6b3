"""What holds of a controller whatever happens: drawn worlds of nodes that come and go, and ranks that end anyhow."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_directory import EventJournal
from bftrainer.harvest.live_tasks import read_live_tasks
from bftrainer.harvest.session import HarvestSession, open_session
from bftrainer.objectives import throughput
from bftrainer.replay import Settings
from bftrainer.runs import ReplayConfig
from tests.harvest.worlds_of_nodes import START_NS, controller, progress, table

NODES = ("n1", "n2", "n3", "n4", "n5")
KINDS = ("join", "leave", "die", "exit", "crash", "train", "train", "wait", "restart", "want")


def steps_of(kinds):
    """What happens, where, and how much of it."""
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 4), st.integers(1, 5)), min_size=5, max_size=25)


STEPS = steps_of(KINDS)


class World:
    """Carriers and ranks as a machine has them; complains if it is told to do what cannot be done."""

    def __init__(self, made, session=None):
        self.made, self.session, self.time_s = made, session, 0.0
        self.carriers, self.ranks, self.leaving = {}, {}, set()
        self.saved, self.work, self.over = {}, {}, None
        self.number = 0

    def tell(self, *events):
        """Let the controller take a step, and do what it says."""
        self.time_s += 0.5
        if self.session is not None:
            self.over = self.session.take_in(self, self.time_s, events)
        else:
            for effect in self.made.step(self.time_s, events):
                self.do(effect)
        for life in self.made.tasks.values():
            here = {node for node, each in self.made.pool.carriers.items() if each.offered and not each.leaving}
            assert life.nodes <= here, "a task holds a node that left"
            assert not (life.is_over and life.nodes)
            assert life.saved <= self.saved.get(life.name, 0.0)

    def do(self, effect):
        """Do what the controller says, as a session does."""
        match effect:
            case ev.Request():
                self.request(effect.nodes)
            case ev.StartRank():
                self.start(effect)
            case ev.StopRank():
                self.stop(effect)
            case ev.Release():
                self.release(effect.carrier)
            case ev.HarvestEnded():
                self.over = effect.reason

    def request(self, nodes):
        """Carriers come at once."""
        for node in nodes:
            assert node not in self.carriers
            self.number += 1
            self.carriers[node] = f"c{self.number}"
        self.tell(*(ev.CarrierUp(node, self.carriers[node]) for node in nodes))

    def start(self, rank):
        """A rank starts, from what was saved."""
        assert self.carriers[rank.node] == rank.carrier
        assert rank.node not in self.leaving
        assert rank.node not in self.ranks, "generations overlap on a node"
        self.ranks[rank.node] = rank
        if rank.rank == 0:
            self.work[rank.task.name] = self.saved.setdefault(rank.task.name, 0.0)

    def stop(self, rank):
        """A rank ends as it was asked to."""
        self.exits(rank.node, 0)

    def release(self, carrier, *, for_others=False):  # noqa: ARG002
        """A carrier goes as it was asked to, unless it has while an effect before was done."""
        for node in [node for node, name in self.carriers.items() if name == carrier]:
            self.leave(node)

    def exits(self, node, status):
        """A rank ends; told to, the first one has saved."""
        rank = self.ranks.pop(node, None)
        if rank is not None:
            name = rank.task.name
            if rank.rank == 0 and status == 0:
                self.saved[name] = self.work[name]
            self.tell(ev.RankExited(name, rank.generation, node, status))

    def leave(self, node):
        """A carrier ends, after its rank."""
        self.leaving.add(node)
        self.tell(ev.CarrierLeaving(node, self.carriers[node]))
        self.exits(node, 0)
        self.lose(node)

    def lose(self, node):
        """A carrier is gone."""
        self.leaving.discard(node)
        self.ranks.pop(node, None)
        self.tell(ev.CarrierLost(node, self.carriers.pop(node)), ev.PoolChanged((node,)))

    def train(self, amount, *, counts_anew=False):
        """All tasks that run do some work, and save some; or say that they have done none."""
        running = {rank.task.name: rank.generation for rank in self.ranks.values()}
        for name, generation in running.items():
            self.work[name] = self.work.get(name, 0.0) + 10.0 * amount
            self.saved[name] = max(self.saved.get(name, 0.0), self.work[name] - 5.0)
            done = 0.0 if counts_anew else self.work[name]
            self.tell(progress(name, generation, done, self.saved[name], self.time_s))

    def happen(self, what, place, amount):
        """One thing happens."""
        node = NODES[place]
        held = node in self.carriers and node not in self.leaving
        if what == "join":
            self.tell(ev.PoolChanged((node,)))
        elif what == "leave" and held:
            self.leave(node)
        elif what == "die" and held:
            self.lose(node)
        elif what in ("exit", "crash") and node in self.ranks:
            self.exits(node, int(what == "crash"))
        elif what in ("train", "count anew"):
            self.train(amount, counts_anew=what == "count anew")
        elif what == "want":
            self.tell(ev.NodesWanted(amount))
        elif what == "wait":
            self.time_s += 10.0 * amount
            self.tell()
        elif what == "restart":
            self.carriers, self.ranks, self.leaving = {}, {}, set()
            self.tell(ev.Restarted())


def drawn(steps):
    """A world in which these things have happened."""
    world = World(controller(settle_s=0.0))
    world.made.step(0.1, [ev.Submitted("tasks.toml", table(name, max_nodes=3)) for name in "bc"])
    for step in steps:
        if world.over is None:
            world.happen(*step)
    return world


@given(STEPS)
def test_nothing_impossible_is_asked_for(steps):
    """No task holds a node that left, generations never overlap on a node, and work goes on from checkpoints."""
    world = drawn(steps)
    if world.over is None:
        world.tell(ev.Asked("stop"))
    assert not world.ranks
    assert not world.carriers
    world.made.finish("interrupted")
    recording = world.made.allocator.recorder.recording
    for task, life in zip(recording.tasks, world.made.tasks.values(), strict=False):
        assert task.spec.name == life.name
        assert abs(task.work_done - min(life.work, task.spec.work)) < 1e-6


@given(steps=steps_of((*KINDS, "count anew")), learned=st.booleans())
@example(steps=[(what, 0, 5) for what in ("join", *["train"] * 5, "count anew", "leave")], learned=False)
def test_the_journal_replays(steps, learned, tmp_path_factory):
    """What a session has written leads to the same state when it is read again, to the last bit."""
    place = tmp_path_factory.mktemp("journal")
    settings = Settings(objective=throughput, solver="dp", startup_cost="full")
    journal, first = EventJournal(place), Controller(settings, START_NS, HarvestLimits(settle_s=0.0))
    journal.begin({"start_ns": START_NS, "settings": {}})
    first.step(0.0, told := [ev.Submitted("tasks.toml", table(scaling={"model": "learned"}) if learned else table())])
    journal.add(first, (), told)
    session = HarvestSession(place, journal, first, ReplayConfig(baseline=False), say=lambda _: None)
    world = World(first, session)
    for step in steps:
        if world.over is None:
            world.happen(*step)
    world.tell(ev.Asked("drain"))
    journal = EventJournal(place)
    again = Controller(settings, START_NS, HarvestLimits(settle_s=0.0))
    assert journal.replay(again) is None
    assert again.tasks == first.tasks
    one, other = again.allocator.cluster, first.allocator.cluster
    for name in ("time_s", "pool", "owner"):
        assert getattr(one, name) == getattr(other, name)
    assert [(task.progress, task.status, task.nodes) for task in one.tasks] == [
        (task.progress, task.status, task.nodes) for task in other.tasks
    ]


def test_the_journal_replays_whatever_a_later_controller_is_told(tmp_path, monkeypatch):
    """One that was to stay got another task when all was done; one that is not to stay reads that, from elsewhere."""
    task = '[[task]]\nname = "a"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1e6\ncommand = "true"\n'
    (tmp_path / "live.toml").write_text(f"schema = 1\n{task}")
    monkeypatch.chdir(tmp_path)

    def opened(file, **limits):
        journal = EventJournal(tmp_path / "h")
        config = ReplayConfig(solver="dp", baseline=False)
        found = read_live_tasks(file), file, config, HarvestLimits(settle_s=0.0, **limits)
        return open_session(tmp_path / "h", journal, *found, say=lambda _: None)

    session = opened(Path("live.toml"), stays=True)
    world = World(session.controller, session)
    world.tell(*session.first)
    world.tell(ev.PoolChanged(("n1",)))
    world.exits("n1", 0)
    world.tell(ev.Submitted(str(tmp_path / "live.toml"), table("b")))
    monkeypatch.chdir("/")
    again = opened(tmp_path / "live.toml")
    assert (again.first, again.reason) == ([], None)
    lives = again.controller.tasks
    assert {name: str(life.status) for name, life in lives.items()} == {"a": "done", "b": "active"}
    assert {life.task.workdir for life in lives.values()} == {str(tmp_path)}
