"""Inventories in all the shapes in which an administrator has them."""

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
BATCH = {"debug": ("n1",), "batch": ("n1", "n2")}


@pytest.mark.parametrize(
    ("text", "names", "out", "partitions"),
    [
        ("n1\nn2\n", "n1 n2", "", {}),
        ("# ours\nn[1-2],m\n\nn4\n", "n1 n2 m n4", "", {}),
        ("n1,idle\nn2,down*\nn3,drained\nn4,mixed-\nn5,idle~\n", "n1 n2 n3 n4 n5", "n2 n3 n5", {}),
        ("n1 idle\nn2 IDLE+DRAIN\nn3 idle+not_responding\n", "n1 n2 n3", "n2 n3", {}),
        ("n1|batch|alloc\nn2|other*|fail*\n", "n1 n2", "n2", {"batch": ("n1",), "other": ("n2",)}),
        ("alpha,mix01\n", "alpha mix01", "", {}),
        (SINFO, "n1 n2 n3 n4", "n2 n4", {"debug": ("n1",), "batch": ("n1", "n2", "n3"), "maint": ("n4",)}),
        (SCONTROL, "n1 n2", "n2", BATCH),
    ],
)
def test_files(tmp_path, text, names, out, partitions):
    """Names come out once each, in all their partitions; those that take no jobs are known."""
    (tmp_path / "nodes.txt").write_text(text)
    inventory = read_inventory(str(tmp_path / "nodes.txt"))
    assert inventory.names == tuple(names.split())
    assert inventory.out_of_service == set(out.split())
    assert inventory.partitions == partitions


def test_hostlists():
    """What is no file is a hostlist, which may be longer than the name of any file."""
    assert read_inventory("n[01-03],login").names == ("n01", "n02", "n03", "login")
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
        (b"\n# none\n", r"nodes: Expected an inventory of nodes, got an empty one\."),
        (b"n1\nn[1-\n", r"nodes:2: Expected a list of nodes"),
        (b"n1 and n2\n", r"nodes:1: Expected nodes, or a node and its state, got 'n1 and n2'\."),
        (b"", r"nodes: Expected lines, got an empty file\."),
    ],
)
def test_sources_that_are_none(tmp_path, source, message):
    """Missing files, malformed hostlists and malformed files are told apart, with file and line, once."""
    if isinstance(source, bytes):
        (tmp_path / "nodes").write_bytes(source)
        source = str(tmp_path / "nodes")
    with pytest.raises(LogError, match=message) as caught:
        read_inventory(source)
    assert str(caught.value).count(str(tmp_path)) <= 1


def test_order():
    """Numbers in names count by value, and text by its letters."""
    assert natural_order(["b2", "b10", "a", "b02", "10", "9"]) == ("9", "10", "a", "b02", "b2", "b10")


SIGNS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
}


@pytest.mark.parametrize(("sign", "word"), SIGNS.items())
def test_signs_mean_what_words_mean(tmp_path, sign, word):
    """A node is out of service whether sinfo's sign or scontrol's word says so, also to who watches."""
    (tmp_path / "sinfo").write_text(f"NODELIST NODES PARTITION STATE\nn1 1 b idle\nn2 1 b idle{sign}\n")
    (tmp_path / "scontrol").write_text(f"NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE+{word}\n")
    for name in ("sinfo", "scontrol"):
        assert read_inventory(str(tmp_path / name)).out_of_service == {"n2"}, name
    assert slurm_cause(f"idle{sign}") == slurm_cause(f"IDLE+{word}") is not None
