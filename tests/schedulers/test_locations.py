"""Locations of Argonne's machines."""

from __future__ import annotations

import pytest

from bftrainer.errors import HostlistError
from bftrainer.schedulers.formats.csv_jobs import MIDPLANE, is_blue_gene, located


@pytest.mark.parametrize(
    ("text", "midplanes"),
    [
        ("MIR-00000-7BFF1-49152", 96),
        ("MIR-04000-7BFF1-32768", 64),
        ("MIR-04000-37FF1-8192", 16),
        ("MIR-00000-33331-512", 1),
        ("MIR-00000-333F1-2048", 4),
        ("MIR-00C00-33331-1024", 2),
        ("MIR-40000-73731-1024", 2),
        ("MIR-08C00-3B3F1-4096", 8),
        ("MIR-00000-11331-128", 1),
    ],
)
def test_boxes(text, midplanes):
    """A box between two corners holds as many midplanes as its nodes fill, around the torus if need be."""
    names = located(text)
    assert len(names) == len(set(names)) == midplanes
    assert is_blue_gene(text)
    if midplanes > 1:
        assert midplanes * MIDPLANE == int(text.rpartition("-")[2])


def test_boxes_around_the_torus():
    """A box whose upper corner is below its lower one reaches around: rows C to F, then 0 to 3."""
    assert located("MIR-00C00-33331-1024") == ("MIR-00000", "MIR-00C00")


def test_disjoint_blocks_share_nothing():
    """Two halves of the machine are the whole machine."""
    halves = [set(located(f"MIR-{low}-{high}-24576")) for low, high in (("00000", "3BFF1"), ("40000", "7BFF1"))]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(located("MIR-00000-7BFF1-49152"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ANL-R00-M0-512", ("ANL-R00-M0",)),
        ("ANL-R00-M0-N04-64", ("ANL-R00-M0",)),
        ("ANL-R47-1024", ("ANL-R47-M0", "ANL-R47-M1")),
        ("a:b:a", ("a", "b")),
        ("1,2,3-5", ("1", "2", "3", "4", "5")),
        ("x1001c0s1b0n0,x1001c0s1b1n0", ("x1001c0s1b0n0", "x1001c0s1b1n0")),
        ("n[1-2],m", ("n1", "n2", "m")),
        ("", ()),
    ],
)
def test_others(text, names):
    """Racks and midplanes of a Blue Gene/P, lists with any separator."""
    assert located(text) == names


def test_ranges_of_racks():
    """Racks are numbered in rows of eight: from R07 the next one is R10."""
    assert len(located("ANL-R00-R47-40960")) == 80
    assert located("ANL-R07-R10-2048")[2] == "ANL-R10-M0"


@pytest.mark.parametrize(
    "text", ["ANL-R00-M0-1024", "ANL-R00-512", "ANL-R00-R03-2048", "MIR-04000-7BFF1-1024", "n[1-", "n[1-999999999]"]
)
def test_blocks_of_the_wrong_size(text):
    """A block whose size is not that of its corners is not to be trusted."""
    with pytest.raises(HostlistError, match="Expected "):
        located(text)
