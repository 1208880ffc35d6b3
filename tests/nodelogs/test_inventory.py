"""Inventories in all the shapes in which an administrator has them."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.harvest.scheduler_polls import slurm_cause
from bftrainer.nodelogs.inventory import natural_order, read_inventory

SINFO = """\
Tue Sep 01 08:00:00 2026
NODELIST   NODES PARTITION       STATE CPUS
n1             1    debug*        idle 64
n1             1     batch        idle 64
n2             1     batch       down* 64
n3             1     batch  mixed-     64
n4             1     maint   drained$  64
"""

SCONTROL = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=32
   State=IDLE ThreadsPerCore=2 TmpDisk=0
   Partitions=debug,batch

NodeName=n2 Arch=x86_64
   State=DOWN*+DRAIN Reason=broken
   Partitions=batch
"""


@pytest.mark.parametrize(
    ("text", "names", "out"),
    [
        ("n1\nn2\n", ("n1", "n2"), set()),
        ("# ours\nn[1-2],m\n\nn4\n", ("n1", "n2", "m", "n4"), set()),
        ("n1,idle\nn2,down*\nn3,drained\nn4,mixed-\nn5,idle~\n", ("n1", "n2", "n3", "n4", "n5"), {"n2", "n3", "n5"}),
        ("n1 idle\nn2 IDLE+DRAIN\n", ("n1", "n2"), {"n2"}),
        ("n1 idle\nn2 idle+not_responding\nn3 idle+maintenance\n", ("n1", "n2", "n3"), {"n2", "n3"}),
        ("n1|batch|alloc\nn2|batch|fail*\n", ("n1", "n2"), {"n2"}),
        ("alpha,mix01\n", ("alpha", "mix01"), set()),
        (SINFO, ("n1", "n2", "n3", "n4"), {"n2", "n4"}),
        (SCONTROL, ("n1", "n2"), {"n2"}),
    ],
)
def test_files(tmp_path, text, names, out):
    """Names come out once each, whatever stands beside them; those that take no jobs are known."""
    (tmp_path / "nodes.txt").write_text(text)
    found = read_inventory(str(tmp_path / "nodes.txt"))
    assert found.names == names
    assert found.out_of_service == out


def test_partitions(tmp_path):
    """A node in several partitions is one node; the default one loses its star."""
    (tmp_path / "sinfo").write_text(SINFO)
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "short").write_text("n1|batch|alloc\nn2|other*|idle\n")
    assert read_inventory(str(tmp_path / "sinfo")).partitions == {
        "debug": ("n1",),
        "batch": ("n1", "n2", "n3"),
        "maint": ("n4",),
    }
    assert read_inventory(str(tmp_path / "scontrol")).partitions == {"debug": ("n1",), "batch": ("n1", "n2")}
    assert read_inventory(str(tmp_path / "short")).partitions == {"batch": ("n1",), "other": ("n2",)}


def test_hostlists():
    """What is no file is a hostlist."""
    assert read_inventory("n[01-03],login").names == ("n01", "n02", "n03", "login")


def test_long_hostlists():
    """A hostlist may be longer than the name of any file."""
    names = tuple(f"n{number}" for number in range(1, 2000, 2))
    assert read_inventory(f"n[{','.join(name[1:] for name in names)}]").names == names
    assert read_inventory(",".join(names)).names == names


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent.txt", r"absent\.txt: No such file\."),
        ("some/where", r"some/where: No such file\."),
        ("n[1-999999999]", r"--nodes: Expected at most 1,000,000 nodes"),
        ("n[1-", r"--nodes: Expected a list of nodes"),
    ],
)
def test_sources_that_are_none(source, message):
    """A file that is not there and a hostlist that is malformed are told apart."""
    with pytest.raises(LogError, match=message):
        read_inventory(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n# none\n", r"nodes: Expected an inventory of nodes, got an empty one\."),
        ("n1\nn[1-\n", r"nodes:2: Expected a list of nodes"),
        ("n1 and n2\n", r"nodes:1: Expected nodes, or a node and its state, got 'n1 and n2'\."),
        ("", r"nodes: Expected lines, got an empty file\."),
    ],
)
def test_malformed_files(tmp_path, text, message):
    """A malformed inventory is refused with file and line."""
    (tmp_path / "nodes").write_text(text)
    with pytest.raises(LogError, match=message) as caught:
        read_inventory(str(tmp_path / "nodes"))
    assert str(caught.value).count(str(tmp_path)) == 1


def test_order():
    """Numbers in names count by value, and text by its letters."""
    assert natural_order(["b2", "b10", "a", "b02", "10", "9"]) == ("9", "10", "a", "b02", "b2", "b10")


@pytest.mark.parametrize(
    ("sign", "word"),
    {
        "*": "NOT_RESPONDING",
        "~": "POWERED_DOWN",
        "#": "POWERING_UP",
        "%": "POWERING_DOWN",
        "!": "POWER_DOWN",
        "$": "MAINTENANCE",
        "@": "REBOOT_REQUESTED",
        "^": "REBOOT_ISSUED",
    }.items(),
)
def test_signs_mean_what_words_mean(tmp_path, sign, word):
    """A node is out of service whether sinfo's sign or scontrol's word says so, also to who watches."""
    (tmp_path / "sinfo").write_text(f"NODELIST NODES PARTITION STATE\nn1 1 b idle\nn2 1 b idle{sign}\n")
    (tmp_path / "scontrol").write_text(f"NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE+{word}\n")
    for name in ("sinfo", "scontrol"):
        assert read_inventory(str(tmp_path / name)).out_of_service == {"n2"}, name
    assert slurm_cause(f"idle{sign}") == slurm_cause(f"IDLE+{word}") is not None
