"""Hostlists: our small expansion against ClusterShell's, and what it refuses."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import expanded, folded, known_part, numbers
from bftrainer.schedulers.formats.tables import expand_location

words = st.from_regex(r"[a-z]{1,3}(-[a-z]{1,2})?", fullmatch=True)


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """A number or a range; padded ones have bounds of one width, on which all tools agree."""
    low = draw(st.integers(0, 120))
    high = low + draw(st.integers(0, 12))
    width = draw(st.integers(len(str(high)), 4)) if draw(st.booleans()) else 0
    first, last = f"{low:0{width}}", f"{high:0{width}}"
    return first if low == high else f"{first}-{last}"


@st.composite
def pieces_of(draw: st.DrawFn) -> str:
    """A name with up to two brackets and perhaps a suffix."""
    text = draw(words)
    for _ in range(draw(st.integers(0, 2))):
        # Equal widths within a bracket: ClusterShell would otherwise take 1 and 01 for the same node.
        parts = draw(st.lists(ranges(), min_size=1, max_size=3))
        widths = {len(part.split("-")[0]) for part in parts}
        text += f"[{parts[0] if len(widths) > 1 else ','.join(parts)}]{draw(words)}"
    return text


@given(st.lists(pieces_of(), min_size=1, max_size=4))
def test_agrees_with_clustershell(parts):
    """A list expands to the names that ClusterShell gives, each once."""
    text = ",".join(parts)
    names = expanded(text)
    assert len(set(names)) == len(names)
    assert set(names) == set(NodeSet(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("a,b, c", ("a", "b", "c")),
        ("f13-03-[01-02],d13n[03,05,07-08]", ("f13-03-01", "f13-03-02", "d13n03", "d13n05", "d13n07", "d13n08")),
        ("r[1-2]c[1,3]n", ("r1c1n", "r1c3n", "r2c1n", "r2c3n")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("n[01-3]", ("n01", "n02", "n03")),
        ("n[1-3,2],n2,n4", ("n1", "n2", "n3", "n4")),
        ("[1-2]x", ("1x", "2x")),
        (" n[1-2] , m ", ("n1", "n2", "m")),
    ],
)  # fmt: skip
def test_expansion(text, names):
    """Commas split outside brackets only, padding is that of the low bound, order is kept and repeats are dropped."""
    assert expanded(text) == names


MALFORMED = ("", ",", "a,", "a,,b", "n[1-2", "n1-2]", "n[]", "n[1-]", "n[2-1]", "n[a-b]", "n[1[2]]", "a b", "n[1;2]")


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_lists_are_refused(text):
    """What is no hostlist is refused in one line that shows it."""
    with pytest.raises(LogError, match=r"^Expected ") as caught:
        expanded(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["n[1-999999999]", "n[1-1000]m[1-1000]k[1-1000]", "n[1-1000000],m", "n" + "[0-9]" * 40]
)
def test_huge_lists_are_refused_at_once(text):
    """A list of 10^9 nodes costs neither time nor memory."""
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(LogError, match="Expected at most 1,000,000 nodes"):
        expanded(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000_000
    assert time.process_time() - began < 20


def test_numbers():
    """Sets of numbers may be separated by commas or blanks, as Flux and Batsim do."""
    assert numbers("0-3 7") == (0, 1, 2, 3, 7)
    assert numbers("0-3,7,2") == (0, 1, 2, 3, 7)
    assert numbers("") == ()
    for text in ("a", "1-", "3-1", "-1"):
        with pytest.raises(LogError, match="Expected numbers and ranges"):
            numbers(text)
    with pytest.raises(LogError, match="at most 1,000,000 numbers"):
        numbers("0-1000000000")


@pytest.mark.parametrize(
    ("text", "names"),
    [("n[01-03,07-1", ("n01", "n02", "n03", "n07")), ("n[05-", ("n05",)), ("a1,12-3", ("a1",)),
     ("n[01-03,07-10],m", tuple(f"n{i:02}" for i in (1, 2, 3, 7, 8, 9, 10))),
     ("n[1", ()), ("abc", ())],
)  # fmt: skip
def test_known_part(text, names):
    """Of a list that was cut off what stood before the last comma is certain, and the low bound of half a range."""
    assert known_part(text) == names


@given(st.sets(st.one_of(words, st.from_regex(r"[a-z]{1,2}[0-9]{1,4}(-ib)?", fullmatch=True)), min_size=1, max_size=30))
def test_folding_loses_nothing(names):
    """A folded list expands to the same names, and equal sets fold to equal text."""
    text = folded(names)
    assert set(expanded(text)) == names
    assert folded(sorted(names, reverse=True)) == text


def test_folding_is_short():
    """Five thousand consecutive nodes are one range."""
    assert folded(f"nid{number:05}" for number in range(1, 5001)) == "nid[00001-05000]"


@pytest.mark.parametrize("text", ["a1," * 60_000 + "b[1-2]", "[" * 60_000, "a[1," * 60_000, "n[" + "1," * 60_000])
def test_long_lists_take_linear_time(text):
    """A list of a megabyte is looked at once, not once a comma."""
    begin = time.process_time()
    for tell in (expanded, expand_location):
        try:
            tell(text)
        except LogError as fault:
            assert "\n" not in str(fault)  # noqa: PT017
    assert time.process_time() - begin < 10
