"""Locations of Argonne's machines."""

from __future__ import annotations

import pytest

from bftrainer.errors import LogError
from bftrainer.schedulers.formats.locations import expand_location, is_whole_block


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
    assert expand_location(text) == names


def test_ranges_of_racks():
    """Racks are numbered in rows of eight: from R07 the next one is R10."""
    assert len(expand_location("ANL-R00-R47-40960")) == 80
    assert expand_location("ANL-R07-R10-2048")[2] == "ANL-R10-M0"


@pytest.mark.parametrize(
    "text",
    [
        "ANL-R00-M0-1024",
        "ANL-R00-512",
        "ANL-R00-R03-2048",
        "n[1-",
        "n[1-999999999]",
    ],
)
def test_blocks_of_the_wrong_size(text):
    """A block whose size is not that of its racks is not to be trusted."""
    with pytest.raises(LogError, match="Expected "):
        expand_location(text)


@pytest.mark.parametrize("text", ["MIR-04000-7BFF1-32768", "MIR-R10-R13-4096", "CET-00000-33331-512", "MIR-R10-1024"])
def test_blocks_without_a_map(text):
    """Blocks of a Blue Gene/Q name no midplanes: their nodes are unknown."""
    assert expand_location(text) == ()
    assert is_whole_block(text) is False
