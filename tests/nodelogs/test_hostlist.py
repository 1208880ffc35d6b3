"""Hostlists: our small expansion against ClusterShell's, and what it refuses."""

import time
import tracemalloc
from contextlib import suppress

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import certain_names, expand_hostlist, fold_hostlist, numbers
from bftrainer.schedulers.formats.tables import expand_location

words = st.from_regex(r"[a-z]{1,3}(-[a-z]{1,2})?", fullmatch=True)


@st.composite
def lists(draw: st.DrawFn) -> str:
    """Names with up to two brackets; ranges in one bracket are padded alike, on which all tools agree."""
    names = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(words)
        for _ in range(draw(st.integers(0, 2))):
            width = draw(st.integers(3, 5)) if draw(st.booleans()) else 0
            lows = draw(st.lists(st.integers(0, 120), min_size=1, max_size=3 if width else 1))
            ranges = (f"{low:0{width}}-{low + draw(st.integers(0, 12)):0{width}}" for low in lows)
            name += f"[{','.join(ranges)}]{draw(words)}"
        names.append(name)
    return ",".join(names)


@given(lists())
def test_agrees_with_clustershell(text):
    """A list expands to the names that ClusterShell gives, each once."""
    names = expand_hostlist(text)
    assert len(set(names)) == len(names)
    assert set(names) == set(NodeSet(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (" a,b, c", ("a", "b", "c")),
        ("f13-03-[01-02],d13n[03,05,07-08]", ("f13-03-01", "f13-03-02", "d13n03", "d13n05", "d13n07", "d13n08")),
        ("r[1-2]c[1,3]n", ("r1c1n", "r1c3n", "r2c1n", "r2c3n")),
        ("n[098-101],n[8-9],[1-2]x", ("n098", "n099", "n100", "n101", "n8", "n9", "1x", "2x")),
        ("n[01-3]", ("n01", "n02", "n03")),
        ("n[1-3,2],n2,n4", ("n1", "n2", "n3", "n4")),
    ],
)
def test_expansion(text, names):
    """Commas split outside brackets only, padding is that of the low bound, order is kept and repeats are dropped."""
    assert expand_hostlist(text) == names


MALFORMED = ("", ",", "a,", "a,,b", "n[1-2", "n1-2]", "n[]", "n[1-]", "n[2-1]", "n[a-b]", "n[1[2]]", "a b", "n[1;2]")


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_lists_are_refused(text):
    """What is no hostlist is refused in one line that shows it."""
    with pytest.raises(LogError, match=r"^Expected .*$"):
        expand_hostlist(text)


@pytest.mark.parametrize(
    "text", ["n[1-999999999]", "n[1-1000]m[1-1000]k[1-1000]", "n[1-1000000],m", "n" + "[0-9]" * 40]
)
def test_huge_lists_are_refused_at_once(text):
    """A list of 10^9 nodes costs neither time nor memory."""
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(LogError, match="Expected at most 1,000,000 nodes"):
        expand_hostlist(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000_000
    assert time.process_time() - began < 20


def test_numbers():
    """Sets of numbers may be separated by commas or blanks, as in Flux."""
    assert numbers("0-3 7") == numbers("0-3,7,2") == [0, 1, 2, 3, 7]
    assert numbers("") == []
    for text in ("a", "1-", "3-1", "-1"):
        with pytest.raises(LogError, match="Expected numbers and ranges"):
            numbers(text)
    with pytest.raises(LogError, match="at most 1,000,000 "):
        numbers("0-1000000000")


def test_lists_that_were_cut_off():
    """What stood before the last comma is certain, and the low bound of half a range."""
    assert certain_names("n[01-03,07-1") == ("n01", "n02", "n03", "n07")
    assert [certain_names(text) for text in ("n[05-", "a1,12-3", "n[1", "abc")] == [("n05",), ("a1",), (), ()]
    assert certain_names("n[01-03,07-10],m") == tuple(f"n{number:02}" for number in (1, 2, 3, 7, 8, 9, 10))


@given(st.sets(st.one_of(words, st.from_regex(r"[a-z]{1,2}[0-9]{1,4}(-ib)?", fullmatch=True)), min_size=1, max_size=30))
def test_folding_loses_nothing(names):
    """A folded list expands to the same names, equal sets fold to equal text, and that is short."""
    text = fold_hostlist(names)
    assert set(expand_hostlist(text)) == names
    assert fold_hostlist(sorted(names, reverse=True)) == text
    assert fold_hostlist(f"nid{number:05}" for number in range(1, 5001)) == "nid[00001-05000]"


@pytest.mark.parametrize("text", ["a1," * 60_000 + "b[1-2]", "[" * 60_000, "a[1," * 60_000, "n[" + "1," * 60_000])
def test_long_lists_take_linear_time(text):
    """A list of a megabyte is looked at once, not once a comma."""
    begin = time.process_time()
    for expand in (expand_hostlist, expand_location):
        with suppress(LogError):
            expand(text)
    assert time.process_time() - begin < 10
