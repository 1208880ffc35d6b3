"""Carriers as jobs of Slurm, whatever Slurm says and whoever dies: on a toy of it."""

import os
import resource
import shutil
import signal
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bftrainer.errors import PollError, RunFailedError, SettingsError
from bftrainer.harvest import slurm_carriers
from bftrainer.harvest.harvest_events import CarrierLeaving, CarrierLost, CarrierUp, NodesWanted, PoolChanged
from bftrainer.harvest.slurm_carriers import SlurmCarriers, WaitingJobs, carrier_partition
from tests.waiting import until

slow = pytest.mark.long


@pytest.fixture
def made(toy, tmp_path, monkeypatch):
    """An engine that was told of idle nodes; `said` is what it says."""
    monkeypatch.setattr(slurm_carriers, "_SETTLE_S", 0.0)
    assert toy.jobs() == {}
    partition = carrier_partition("scavenge", 1800.0, knows=True)
    assert partition.above == ("batch",)  # another one has none of its nodes
    with started(tmp_path, partition) as engine:
        yield engine


@contextmanager
def started(folder, partition):
    """An engine in a directory below a folder."""
    (folder / "harvest").mkdir(exist_ok=True)
    said = []
    with closing(SlurmCarriers(folder / "harvest", partition, 1800.0, 0.05, "127.0.0.1", say=said.append)) as engine:
        engine.said, engine.seen = said, []
        assert heard(engine, PoolChanged) == PoolChanged(("n1", "n2", "n3"))
        yield engine


def hold(engine, *nodes):
    """Ask for carriers, and wait until they hold their nodes."""
    engine.request(nodes)
    found = {heard(engine, CarrierUp) for _ in nodes}
    assert {event.node for event in found} == set(nodes)
    return found


@pytest.fixture
def held(made):
    """An engine whose carrier 2 holds n1."""
    hold(made, "n1")
    return made


def heard(engine, *kinds):
    """Poll until there is an event of such a kind; it."""

    def one():
        engine.seen += engine.poll(0.05)
        return next((event for event in engine.seen if isinstance(event, kinds)), None)

    found = until(one)
    engine.seen.remove(found)
    return found


def until_idle(engine, *nodes, since=("n1", "n2", "n3")):
    """Poll until these nodes, and no others, were said to be idle or held, which some were before."""
    idle = set(since)

    def same():
        engine.seen += engine.poll(0.05)
        for event in [event for event in engine.seen if isinstance(event, PoolChanged | CarrierLeaving | CarrierLost)]:
            engine.seen.remove(event)
            idle.difference_update(event.busy if isinstance(event, PoolChanged) else {event.node})
            idle.update(event.idle if isinstance(event, PoolChanged) else ())
        return idle == set(nodes)

    until(same)


def nodes_of_tests(toy):
    """Nodes of the first two jobs, by which carriers are tested."""
    submitted = [each for each in toy.asked() if each.startswith("sbatch")]
    return ["n1" if "--nodelist=n1" in each else "n2" for each in submitted[:2]]


@slow
def test_a_carrier_holds_a_node_and_gives_it_back(made, toy):
    """The first carrier is a test that it hears SIGTERM; then jobs hold nodes, and their numbers are their names.

    They have the limits of the user, as Slurm hands those of `sbatch` on to the job: checkpoints may be larger than
    what we read of a command.
    """
    assert hold(made, "n1", "n2") == {CarrierUp("n1", "2", "127.0.0.1"), CarrierUp("n2", "3", "127.0.0.1")}
    assert list(toy.jobs()) == ["2", "3"]
    assert resource.prlimit(toy.pid("2"), resource.RLIMIT_FSIZE) == resource.getrlimit(resource.RLIMIT_FSIZE)
    made.release("2")
    assert heard(made, CarrierLeaving, CarrierLost) == CarrierLeaving("n1", "2")
    assert heard(made, CarrierLost) == CarrierLost("n1", "2")
    until_idle(made, "n1", "n2", "n3")
    os.kill(toy.pid("3"), signal.SIGTERM)
    assert heard(made, CarrierLeaving, CarrierLost) == CarrierLeaving("n2", "3")


@slow
def test_nothing_comes_while_somebody_waits(made, toy, monkeypatch):
    """An ordinary job may need more than the node that is free already: those that have not come yet are taken back."""
    monkeypatch.setattr(slurm_carriers, "_SETTLE_S", 0.5)
    hold(made, "n1", "n2")
    toy.put("pending")
    made.request(("n3",))
    until(lambda: made.poll(0.05) == [] and "4" in toy.jobs())
    os.kill(toy.pid("3"), signal.SIGSTOP)
    os.kill(toy.pid("3"), signal.SIGTERM)
    os.kill(toy.pid("2"), signal.SIGTERM)
    assert {heard(made, CarrierLost), heard(made, CarrierLost)} == {CarrierLost("n1", "2"), CarrierLost("n3", "4")}
    monkeypatch.setattr(made, "_settled_s", float("inf"))
    made.request(("n3",))
    assert heard(made, CarrierLost) == CarrierLost("n3", "")
    monkeypatch.setattr(made, "_settled_s", 0.0)
    assert sum(each.startswith("sbatch") for each in toy.asked()) == 4
    toy.drop("pending")
    os.kill(toy.pid("3"), signal.SIGCONT)
    assert heard(made, CarrierLost) == CarrierLost("n2", "3")
    until_idle(made, "n1", "n2", "n3")


@slow
def test_carriers_leave_for_jobs_that_slurm_lets_wait(made, toy, monkeypatch):
    """For one that came when carriers left, and waits, nodes are wanted once; Slurm is asked only then."""
    monkeypatch.setattr(slurm_carriers, "_SETTLE_S", 3.0)
    hold(made, "n1", "n2", "n3")
    assert not any("PD" in each for each in toy.asked())
    toy.put("nodes", "n1 down", "n2 idle", "n3 idle")
    rows = ("90|1|{0}|Resources", "91|1|{0}|Dependency", "92|1|{1}|Resources", "93|9|{0}|Priority", "94|1|{2}|None")
    now_s = int(time.time())
    toy.put("waiting", *(row.format(now_s - 5, now_s - 500, now_s + 500) for row in rows))
    os.kill(toy.pid("2"), signal.SIGTERM)
    assert heard(made, CarrierLost) == CarrierLost("n1", "2")
    assert heard(made, NodesWanted) == NodesWanted(1)
    made.release("4", for_others=True)
    assert heard(made, CarrierLost) == CarrierLost("n3", "4")
    until_idle(made, "n2", "n3")
    assert not any(isinstance(event, NodesWanted) for event in made.seen)
    assert len(toy.jobs()) == 1
    toy.put("waiting", "nonsense")
    os.kill(toy.pid(*toy.jobs()), signal.SIGTERM)
    until(lambda: made.poll(0.05) is not None and made.said)
    expected = "squeue: Expected jobs and the nodes they need, got 'nonsense'."
    assert made.said == [f"{expected} Going on with the nodes that are held."]


@slow
def test_who_gives_way_is_chosen(toy, tmp_path):
    """Where Slurm has nobody make room, nodes are wanted for whoever waits for more than are idle, since whenever."""
    toy.edit("partitions", "CANCEL", "OFF")
    partition = carrier_partition("scavenge", 1800.0, chosen=True, knows=True)
    assert (partition.objection, partition.grace_s) == ("", 2)
    with started(tmp_path, partition) as engine:
        hold(engine, "n1", "n2")
        toy.put("waiting", f"90|2|{int(time.time()) - 500}|Priority", f"91|1|{int(time.time())}|Dependency")
        assert heard(engine, NodesWanted) == NodesWanted(1)  # the third node is idle
        engine.release("3", for_others=True)
        assert heard(engine, CarrierLost) == CarrierLost("n2", "3")


@pytest.mark.parametrize(
    ("waiting", "nodes", "more"),
    [
        ({"a": 4}, (4, 4), 0),  # those that leave are free soon
        ({"a": 4, "b": 1}, (4, 4), 1),  # another one comes meanwhile, which does not get what was left for the first
        ({"a": 4}, (2, 4), 2),  # others took two of those that were left
        ({"a": 4}, (2, 4, 2), 0),  # two are not free yet, as Slurm still clears up
        ({"a": 4, "b": 1}, (2, 4, 2), 1),
        ({"a": 4}, (0, 8), 0),  # none was taken, and carriers are back: the job needs other nodes
        ({"c": 9, "d": 1}, (0, 8), 1),  # one that needs more than there are waits for others
    ],
)
def test_carriers_leave_once_for_a_job(waiting, nodes, more):
    """Unless others take what was left for it."""
    jobs = WaitingJobs(("batch",), chosen=True)
    assert jobs.carriers_to_release({"a": 4}, 0, 8) == 4
    assert jobs.carriers_to_release(waiting, *nodes) == more


@slow
@pytest.mark.usefixtures("held")
def test_the_key_is_seen_by_nobody(toy, tmp_path):
    """It is in a file of this user's alone, and on no command line."""
    (script,) = (tmp_path / "harvest").glob("carrier-*.sh")
    assert script.stat().st_mode & 0o077 == 0
    key = script.read_text().split("BFTRAINER_CARRIER_KEY=")[1].split()[0]
    shown = [*toy.asked(), Path(f"/proc/{toy.pid('2')}/cmdline").read_text()]
    assert len(key) == 64
    assert not any(key in each for each in shown)


@slow
def test_a_step_that_is_not_told_is_no_carrier(made, toy, monkeypatch):
    """Where SIGTERM does not reach it, nothing is harvested."""
    monkeypatch.setattr(slurm_carriers, "_SIGNAL_S", 0.3)
    toy.put("deaf")
    with pytest.raises(RunFailedError, match=r"^Job 1 was sent SIGTERM, and its step heard nothing"):
        made.request(("n1", "n2"))
    toy.drop("deaf")


@slow
def test_carriers_that_cannot_come_up(made, toy):
    """After three attempts it is given up, and said where to look."""
    toy.put("srun.fails", "srun: error: no")
    for _ in "12":
        made.request(("n1",))
        heard(made, CarrierLost)
    with pytest.raises(
        RunFailedError, match=r"^Job 3 has ended before its carrier could come up; see .*/carriers\.log\.$"
    ):
        made.request(("n1",))
    toy.drop("srun.fails")


@slow
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("sbatch", "QOSMaxSubmitJobPerUserLimit"),
        ("scancel", "Socket timed out"),  # nobody is blamed for not hearing a signal that was not sent
    ],
)
def test_what_slurm_refuses(made, toy, monkeypatch, command, fault):
    """One line; nothing is submitted for a while, then again, and the test is made on another node."""
    toy.put(f"{command}.fails", f"{command}: error: {fault}")
    made.request(("n1", "n2"))
    assert {heard(made, CarrierLost).node for _ in "12"} == {"n1", "n2"}
    assert made.said == [f"{command}: error: {fault}. No carriers are submitted for 60 s."]
    toy.drop(f"{command}.fails")
    monkeypatch.setattr(made, "_refused_until_s", 0.0)
    until_idle(made, "n1", "n2", "n3", since=("n3",))
    hold(made, "n1", "n2")
    assert nodes_of_tests(toy) == ["n1", "n2"]


@slow
@pytest.mark.parametrize(("state", "wait_s"), [("mixed", 15.0), ("idle", 0.0)])
def test_a_carrier_that_does_not_come_is_taken_back(made, toy, monkeypatch, state, wait_s):
    """An ordinary job was faster, or Slurm starts nothing on the node: the test is made on another one."""
    monkeypatch.setattr(slurm_carriers, "_TEST_WAIT_S", wait_s)
    toy.put("nodes", f"n1 {state}", "n2 idle", "n3 idle")
    toy.put("pending")
    made.request(("n1", "n2"))
    toy.drop("pending")
    assert {heard(made, CarrierLost).node for _ in "12"} == {"n1", "n2"}
    until(lambda: made.poll(0.05) == [] and not toy.jobs())
    made.request(("n1", "n2"))
    assert heard(made, CarrierUp).node in ("n1", "n2")
    assert nodes_of_tests(toy) == ["n1", "n2"]


@slow
def test_slurm_does_not_answer(held, toy):
    """One line when that begins, and one when it ends; carriers stay."""
    toy.put("squeue.fails", "slurm_load_jobs error: Unable to contact slurm controller")
    until(lambda: held.poll(0.05) == [] and held.said)
    toy.drop("squeue.fails")
    until(lambda: held.poll(0.05) == [] and len(held.said) > 1)
    assert held.said == [
        "squeue: slurm_load_jobs error: Unable to contact slurm controller. Going on with the nodes that are held.",
        "Slurm answers again.",
    ]
    assert list(toy.jobs()) == ["2"]


@slow
@pytest.mark.parametrize(
    "do",
    [
        # Whoever drains a node need not wait for a carrier's time to be over.
        lambda toy: toy.put("nodes", "n1 drain", "n2 idle", "n3 idle"),
        # Slurm tells steps that are there when a job has to make room; one that begins later is told by us.
        lambda toy: toy.put("ending"),
        # Killed: its node can be used again when its ranks have had their time to end.
        lambda toy: os.kill(toy.pid("2"), signal.SIGKILL),
        # A carrier whose job is gone for Slurm, but which still talks, is sent away.
        lambda toy: (toy.here / "jobs" / "2").unlink(),
    ],
    ids=["drained", "told too late", "killed", "lost by Slurm"],
)
def test_how_carriers_end(held, toy, monkeypatch, do):
    """Their node is lost as soon as that is known, and can be used again once they are gone."""
    monkeypatch.setattr(slurm_carriers, "SLACK_S", 0.0)
    do(toy)
    assert heard(held, CarrierLeaving, CarrierLost) == CarrierLeaving("n1", "2")
    assert heard(held, CarrierLost) == CarrierLost("n1", "2")


def test_a_copy_of_a_harvest_has_jobs_of_its_own(tmp_path):
    """Else it would end those of the original; a directory that was moved keeps its jobs' name."""
    (tmp_path / "one").mkdir()
    name = slurm_carriers.job_name(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    (tmp_path / "one").rename(tmp_path / "moved")
    assert slurm_carriers.job_name(tmp_path / "moved") == name
    assert slurm_carriers.job_name(tmp_path / "copy") not in (name, "")


@pytest.mark.usefixtures("made")
def test_carriers_of_an_earlier_controller(toy, tmp_path):
    """They are ended before another controller begins, those of other harvests are not."""
    title = (tmp_path / "harvest" / "carriers.name").read_text().split()[0]
    toy.put("jobs/7", f"n3 {title} PENDING")
    said, partition = [], carrier_partition("scavenge", 1800.0, knows=True)
    SlurmCarriers(tmp_path / "harvest", partition, 1800.0, 0.05, "127.0.0.1", say=said.append).close()
    assert said == ["Carriers of an earlier controller have ended: 7."]
    cancelled = [line for line in toy.asked() if line.startswith("scancel")]
    assert cancelled == [f"scancel -u {os.geteuid()} -n {title} 7"]


OFF = ("partitions", "CANCEL", "OFF")
EQUAL = ("partitions", "Tier=10", "Tier=1")
NOBODY_ABOVE = r"no partition of its nodes has a PriorityTier above its 1 \(see --i-know\)\.$"


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        # Nothing is taken where it could be in anybody's way.
        (
            [("partitions", "scavenge", "other")],
            {},
            "^Expected --partition to be one of batch, gpu, other, got 'scaven",
        ),
        (
            [("partitions", "01:00:00", "00:29:00")],
            {},
            "^partition scavenge: .* --max-hold of a minute .* at most 1740 s",
        ),
        ([OFF], {}, r"^partition scavenge: .* but its PreemptMode is OFF \(see --i-know\)\.$"),
        ([EQUAL], {}, NOBODY_ABOVE),
        ([("config", "partition_prio", "none")], {}, r"Slurm preempts no jobs \(PreemptType=preempt/none\)"),
        ([("config", "partition_prio", "qos")], {}, "Slurm goes by QOS here"),
        # Nobody can choose where Slurm would name who makes room first, or ordinary jobs have no right of way.
        ([], {"chosen": True}, r"Slurm names who makes room before the harvest can \(PreemptMode=CANCEL"),
        ([OFF, EQUAL], {"chosen": True}, NOBODY_ABOVE),
        # Not for less than a minute.
        ([], {"hold_s": 61.0}, "Expected --max-hold of a minute and the grace time of 2 s at least"),
        # Nor where Slurm says what nobody understands.
        (
            [("partitions", "GraceTime=2", "GraceTime=soon")],
            {},
            r"^scontrol: Expected GraceTime to be a number, got 'soon'\.$",
        ),
        *(
            ([("partitions", was, f"Tier={said} ")], {}, rf"^scontrol: .* PriorityTier to be a number, got '{said}'\.$")
            for was, said in (("Tier=10 ", "high"), ("Tier=1 ", "-1"))
        ),
    ],
)
def test_partitions_that_are_refused(toy, changes, asked, message):
    """In one line."""
    for change in changes:
        toy.edit(*change)
    with pytest.raises((SettingsError, PollError), match=message):
        carrier_partition("scavenge", **({"hold_s": 1800.0} | asked))


@pytest.mark.parametrize("said", ["\n", "1", "x h RUNNING", "slurm_load_jobs error\n1 h RUNNING 0 9"])
def test_jobs_of_nonsense(monkeypatch, said):
    """Nothing is taken for a job, or for its absence, that is not understood."""
    monkeypatch.setattr(slurm_carriers, "run_command", lambda *_, **__: said)
    with pytest.raises(PollError, match=r"^squeue: Expected jobs and their states, got "):
        slurm_carriers.CarrierJobs("scavenge", "h", Path("log"), 1800.0).list_states()


def test_who_may_harvest(toy, monkeypatch):
    """Not root, and not without Slurm."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SettingsError, match=r"^Expected a user other than root"):
        carrier_partition("scavenge", 1800.0)
    assert carrier_partition("scavenge", 1800.0, knows=True).grace_s == 2
    toy.put("scontrol.fails", "slurm_load_partitions: Unable to contact slurm controller (connect failure)")
    with pytest.raises(PollError, match=r"^scontrol: slurm_load_partitions: Unable"):
        carrier_partition("scavenge", 1800.0)
