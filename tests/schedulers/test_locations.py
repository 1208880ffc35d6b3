"""Locations of Argonne's machines."""

from __future__ import annotations

import itertools
import math

import pytest

from bftrainer.errors import HostlistError
from bftrainer.schedulers.formats.locations import MIDPLANE, is_whole_block, located


@pytest.mark.parametrize(
    ("text", "midplanes"),
    [
        ("MIR-00000-7BFF1-49152", 96),
        ("MIR-04000-7BFF1-32768", 64),
        ("MIR-04000-37FF1-8192", 16),
        ("MIR-00000-33331-512", 1),
        ("MIR-00000-333F1-2048", 4),
        ("MIR-00C00-33331-1024", 2),
        ("MIR-00C80-33FF1-1-1024", 2),
        ("MIR-40000-73731-1024", 2),
        ("MIR-08C00-3B3F1-4096", 8),
        ("MIR-00000-11331-128", 1),
    ],
)
def test_boxes(text, midplanes):
    """A box between two corners holds as many midplanes as its nodes fill, around the torus if need be."""
    names = located(text)
    assert len(names) == len(set(names)) == midplanes
    assert is_whole_block(text) is (midplanes > 1 or text.endswith("512"))
    if midplanes > 1:
        assert midplanes * MIDPLANE == int(text.rpartition("-")[2])


LENGTHS = (2, 3, 4, 4)
"""Midplanes along A to D."""
SHAPES = [
    (first, size)
    for size in itertools.product(*(range(1, length + 1) for length in LENGTHS))
    for first in itertools.product(*map(range, LENGTHS))
]


def block(first, size, counter=""):
    """Name of the block of so many midplanes from one on, around the torus."""
    low = [4 * at for at in first]
    high = [(at + count - 1) % length * 4 + 3 for at, count, length in zip(first, size, LENGTHS, strict=True)]
    corners = ("".join(f"{digit:X}" for digit in digits) for digits in ([*low, 0], [*high, 1]))
    return f"MIR-{'-'.join(corners)}-{counter}{MIDPLANE * math.prod(size)}"


def test_all_shapes_of_blocks():
    """Every box of midplanes, wherever it begins, with a counter or without, has those that its name says."""
    assert len(SHAPES) == 96 * 96
    whole = set()
    for first, size in SHAPES:
        names = located(block(first, size))
        sides = (range(at, at + count) for at, count in zip(first, size, strict=True))
        cells = (
            "".join(f"{at % length * 4:X}" for at, length in zip(cell, LENGTHS, strict=True))
            for cell in itertools.product(*sides)
        )
        assert set(names) == {f"MIR-{cell}0" for cell in cells}
        assert len(names) == math.prod(size)
        assert located(block(first, size, "7-")) == names
        assert is_whole_block(block(first, size, "1-"))
        whole.update(names)
    assert len(whole) == 96


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
        ("[12, 15]", ("12", "15")),
        ("[r1n1 r1n2]", ("r1n1", "r1n2")),
        ("a;b|c", ("a", "b", "c")),
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
    "text",
    [
        "ANL-R00-M0-1024",
        "ANL-R00-512",
        "ANL-R00-R03-2048",
        "MIR-04000-7BFF1-1024",
        "MIR-80000-FBFF1-512",
        "MIR-0C000-33331-512",
        "n[1-",
        "n[1-999999999]",
    ],
)
def test_blocks_of_the_wrong_size(text):
    """A block whose size is not that of its corners is not to be trusted."""
    with pytest.raises(HostlistError, match="Expected "):
        located(text)


def test_a_block_with_a_counter():
    """A number before the size counts blocks of the same corners."""
    assert located("MIR-00C80-33FF1-1-1024") == ("MIR-00C80", "MIR-00CC0")


@pytest.mark.parametrize("text", ["MIR-R10-R13-4096", "CET-00000-33331-512", "VST-00040-33371-2-512", "MIR-R10-1024"])
def test_blocks_without_a_map(text):
    """Racks of Mira, and blocks of its test machines, name no midplanes: their nodes are unknown."""
    assert located(text) == ()
    assert is_whole_block(text) is False
