"""A watch writes down what it is told: what it was not told is not idle, whatever the clock or the disk does."""

import os
import random
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pytest

from bftrainer.errors import OutputError, PollError
from bftrainer.files.writing import LineJournal, seal_line
from bftrainer.harvest import watch as watching
from bftrainer.harvest.scheduler_polls import slurm_pool
from bftrainer.harvest.watch import Watch, begin_or_continue, journal_path
from bftrainer.model import iso
from bftrainer.nodelogs import read_node_log
from bftrainer.schedulers.formats.node_states import KIND
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings

DAY = 1788220800.0
EVERY_S = 30.0


@pytest.fixture(autouse=True)
def _no_loss_of_power(monkeypatch):
    """Thousands of polls need not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Scripted:
    """A scheduler and its clock: what it prints is a function of seconds, None if it does not answer; nobody sleeps.

    `put_back` says when the clock is put back, in true seconds, and by how much.
    """

    source = "sinfo"

    def __init__(self, answer, put_back=()):
        self.answer, self.put_back, self.now_s, self.naps = answer, dict(put_back), 0.0, 0

    def __call__(self):
        said = self.answer(self.now_s)
        if said is None:
            raise PollError("sinfo: slurm_load_partitions: Unable to contact slurm controller (connect failure).")
        return slurm_pool(said)

    def monotonic(self):
        """What a clock says that is never put back."""
        return self.now_s

    def time(self):
        """What the clock on the wall says."""
        return DAY + self.now_s - sum(by for at, by in self.put_back.items() if at <= self.now_s)

    def sleep(self, time_s):
        """Time goes by."""
        self.now_s += time_s


def watch_for(scripted, path, for_s, every_s=EVERY_S):
    """Watch for some seconds, into a node log; what was said, and the import."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "time", scripted)
        with Watch(scripted, path, every_s, said.append, "bftrainer watch slurm") as watch:
            watch.run(for_s)
            return said, watch.write()


def at(time_s):
    """When that is."""
    return iso(int((DAY + time_s) * 1e9))


IDLE = lambda _: "n1 idle idle\nn2 allocated allocated\n"  # noqa: E731
WORDS = {
    "idle": ["idle idle"],
    "job": ["allocated allocated", "mixed mixed", "idle+completing completing"],
    "down": ["down down", "idle+not_responding idle*"],
    "drain": ["idle+drain drained"],
    "maintenance": ["idle+maintenance+reserved maint"],
    "reserved": ["idle+reserved reserved"],
    "planned": ["idle+planned planned"],
    "powered_down": ["idle+cloud+powered_down idle~"],
}


@dataclass
class Machine:
    """24 hours of a machine, poll by poll: by node the cause of each interval, `away` where there is none."""

    polls: int = 2880
    causes: dict[str, list[str]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def __post_init__(self):
        rng = random.Random(7)
        for number in range(1, 21):
            row: list[str] = []
            while len(row) < self.polls:
                cause = rng.choice(["idle"] * 6 + ["job"] * 6 + list(WORDS))
                row += [cause] * rng.choice([1, 1, 2, 7, 30, 120, 400])
            self.causes[f"n{number:02}"] = row[: self.polls]
        # n05 is renamed, n20 is added in the morning, n01 leaves for two hours, n11 for good.
        row, away = self.causes["n05"], ["away"] * self.polls
        self.causes["n05"], self.causes["gpu05"] = row[:1000] + away[1000:], away[:1000] + row[1000:]
        self.causes["n20"] = away[:700] + self.causes["n20"][700:]
        self.causes["n01"][500:740] = away[500:740]
        self.causes["n11"][2000:] = away[2000:]
        # Of the controller's forty minutes and of single polls nothing is known.
        self.lost = {*range(1500, 1580), *rng.sample(range(1, self.polls - 1), 25)}

    def answer(self, time_s):
        """What sinfo prints then."""
        at = round(time_s / EVERY_S)
        if at in self.lost:
            return None
        rows = {name: row[min(at, self.polls - 1)] for name, row in self.causes.items()}
        told = {name: WORDS[cause][at % len(WORDS[cause])] for name, cause in rows.items() if cause != "away"}
        return "".join(f"{name} {states}\n" for name, states in told.items())

    def table(self):
        """The same history as a table of busy spans, which knows nothing of polls."""
        rows = ["start,end,nodes,cause"]
        for name, row in self.causes.items():
            seen, known = [], "away"
            for at, cause in enumerate(row):
                known = known if at in self.lost else cause
                seen.append("unknown" if at in self.lost and known != "away" else known)
            begin = 0
            for cause, some in groupby(seen):
                end = begin + len(list(some))
                if cause != "idle":
                    rows.append(f"{int(DAY + begin * EVERY_S)},{int(DAY + end * EVERY_S)},{name},{cause}")
                begin = end
        return "\n".join(rows) + "\n"


def test_a_day_is_as_an_importer_has_it(tmp_path):
    """24 hours of missed polls, renamed nodes and a controller that is down give the node log of the same history."""
    machine = Machine()
    _, done = watch_for(Scripted(machine.answer), tmp_path / "idle.parquet", machine.polls * EVERY_S)
    (tmp_path / "busy.csv").write_text(machine.table())
    settings = ImportSettings(
        map=tuple(f"{role}={role}" for role in ("start", "end", "nodes", "cause")),
        start=iso(done.log.start_ns),
        end=iso(done.log.end_ns),
        window="asked",
        nodes="gpu05,n[01-20]",
        unseen="idle",
        min_gap_s=0.0,
    )
    other = import_log("table", [tmp_path / "busy.csv"], settings)
    assert done.log.window_s == 24 * 3600
    log = read_node_log(tmp_path / "idle.parquet")
    assert (log.nodes, log.start_ns, log.end_ns) == (other.log.nodes, other.log.start_ns, other.log.end_ns)
    for name in ("time_ns", "node", "idle"):
        np.testing.assert_array_equal(getattr(log, name), getattr(other.log, name))
    assert done.quality.busy_node_s == other.quality.busy_node_s
    assert set(done.quality.busy_node_s) == {*WORDS, "away", "unknown"} - {"idle"}
    assert log.provenance["format"] == "watch"
    assert next(note for note in other.log.notes if note.startswith("node-hours")) in log.notes


def test_restarted_it_goes_on(tmp_path):
    """Ended and begun again, also by kill -9, it gives one log; between the two nothing is known."""
    machine, path = Machine(), tmp_path / "idle.parquet"
    scripted = Scripted(machine.answer)
    watch_for(scripted, path, 100 * EVERY_S)
    scripted.now_s = 110 * EVERY_S
    watch_for(scripted, path, 90 * EVERY_S)
    journal = journal_path(path)
    journal.write_bytes(journal.read_bytes()[:-7])  # the last line was torn
    scripted.now_s = 200 * EVERY_S
    _, done = watch_for(scripted, path, 100 * EVERY_S)
    (tmp_path / "other").mkdir()
    machine.lost |= {*range(101, 110)}
    _, whole = watch_for(Scripted(machine.answer), tmp_path / "other" / "idle.parquet", 300 * EVERY_S)
    for name in ("time_ns", "node", "idle"):
        np.testing.assert_array_equal(getattr(done.log, name), getattr(whole.log, name))
    assert done.quality.busy_node_s == whole.quality.busy_node_s


def test_a_day_is_told_anew(tmp_path):
    """A damaged line costs a day at most: all nodes are told again every day."""
    watch_for(Scripted(IDLE), tmp_path / "idle.parquet", 3 * 86_400, every_s=6 * 3600)
    assert journal_path(tmp_path / "idle.parquet").read_text().count("+ idle n1 job n2 ") == 4


def test_a_clock_that_jumps(tmp_path):
    """Time that comes twice counts once, as it was seen first, and polls go on at the same pace; a jump is a gap."""
    scripted = Scripted(IDLE, put_back={300.0: 120.0, 900.0: 1.0})
    said, done = watch_for(scripted, tmp_path / "idle.parquet", 1200)
    assert done.log.window_s == 1200 - 120 - 1
    assert said == [
        f"{at(180)}: The clock was put back: nothing is written until {at(270)}.",
        f"{at(300)}: The scheduler is seen again.",
    ]
    assert set(done.quality.busy_node_s) == {"job"}
    _, done = watch_for(Scripted(IDLE, put_back={300.0: -5000.0}), tmp_path / "slept.parquet", 600)
    assert done.quality.busy_node_s == {"job": 600.0, "unknown": 2 * 5000.0}


def test_slow_answers(tmp_path, monkeypatch):
    """Polls that take longer than the interval are begun at multiples of it, and what lies between is not known."""
    scripted = Scripted(lambda _: scripted.sleep(40.0) or "n1 idle idle\n")
    monkeypatch.setattr(watching, "time", scripted)
    with Watch(scripted, tmp_path / "idle.parquet", EVERY_S, print) as watch:
        watch.run(600)
        done = watch.write()
    assert (watch.polls, watch.missed) == (11, 10)
    assert np.isin(done.log.time_ns, [int((DAY + at * 30) * 1e9) for at in range(30)]).all()
    assert done.quality.busy_node_s == {"unknown": 300.0}


def journal_of(*lines):
    """What a journal has of these lines."""
    return b"".join(seal_line(line) + b"\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("idle.parquet", b"mine", r"idle\.parquet: File exists"),
        ("idle.watch", b"somebody's notes\n", r"idle\.watch: Expected a journal of sinfo, got something else\."),
        ("idle.watch", journal_of(f"{KIND}: sinfo -p gpu"), r"a journal of sinfo, got one of sinfo -p gpu\."),
        ("idle.watch", journal_of("bftrainer watch 2: sinfo"), r"a journal of sinfo, got something else\."),
    ],
)
def test_other_files_stay_as_they_are(tmp_path, name, content, said):
    """A node log of another origin, a journal of another partition, and what is no journal are not touched."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OutputError, match=said):
        Watch(Scripted(IDLE), tmp_path / "idle.parquet", 30.0, print)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(name, content)]


def test_the_first_poll_has_to_work(tmp_path):
    """Or nobody would notice for days that nothing is written; later ones are missed, and said once."""
    with pytest.raises(PollError, match="Unable to contact slurm controller"):
        watch_for(Scripted(lambda _: None), tmp_path / "idle.parquet", 600)
    assert not any(tmp_path.iterdir())
    said, done = watch_for(Scripted(lambda at: None if 100 < at < 300 else IDLE(at)), tmp_path / "idle.parquet", 600)
    assert [line.partition(": ")[0] for line in said] == [at(120), at(300)]
    assert [line.split(": ")[1] for line in said] == ["sinfo", "The scheduler is seen again."]
    assert done.quality.busy_node_s["unknown"] == 2 * 180.0


def test_the_second_poll_may_fail(tmp_path):
    """A watch of days is not lost for that: the node log waits until two polls have succeeded, or is not made."""
    _, done = watch_for(Scripted(lambda at: None if 10 < at < 100 else IDLE(at)), tmp_path / "idle.parquet", 600)
    assert done.quality.busy_node_s["unknown"] == 2 * 90.0
    said, done = watch_for(Scripted(lambda at: None if at else IDLE(at)), tmp_path / "short.parquet", 600)
    assert (len(said), done) == (1, None)
    assert not (tmp_path / "short.parquet").exists()


def test_an_interrupt_just_after_the_second_poll(tmp_path, monkeypatch):
    """What stands in the journal counts, so that there is a node log of what was seen."""
    scripted, append = Scripted(IDLE), LineJournal.append

    def append_and_end(journal, lines):
        """Be told to end as soon as the second poll is written."""
        append(journal, lines)
        if scripted.now_s:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "time", scripted)
    monkeypatch.setattr(LineJournal, "append", append_and_end)
    with Watch(scripted, tmp_path / "idle.parquet", EVERY_S, print) as watch:
        with pytest.raises(KeyboardInterrupt):
            watch.run()
        assert watch.write().log.nodes == ("n1", "n2")


def test_a_full_disk(tmp_path, monkeypatch):
    """It ends with one line; what was written is whole, and a later watch goes on with it."""
    path, append = tmp_path / "idle.parquet", LineJournal.append
    rooms = iter(range(5))

    def full(journal, *texts):
        """Find room five times."""
        if next(rooms, None) is None:
            raise OutputError("No space left on device.")
        append(journal, *texts)

    monkeypatch.setattr(LineJournal, "append", full)
    scripted = Scripted(IDLE)
    with pytest.raises(OutputError, match="No space left"):
        watch_for(scripted, path, 600)
    monkeypatch.undo()
    _, done = watch_for(scripted, path, 600)
    assert done.log.window_s == 90 + 30 + 600


def test_a_torn_beginning_heals(tmp_path):
    """A journal whose first line was never whole begins anew."""
    path, title = tmp_path / "x.watch", f"{KIND}: here"
    for end in range(len(seal_line(title)) + 1):
        path.write_bytes(seal_line(title)[:end])
        assert begin_or_continue(LineJournal(path), "here") == title
        assert path.read_bytes() == seal_line(title) + b"\n"
    assert begin_or_continue(LineJournal(path), "here") == title
