"""Expand and fold hostlists, `cpn-f13-03-[01-02],d13n[03,05,07-08]`, and sets of numbers, `0-3,7`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence

from bftrainer.errors import LogError

MOST_NODES = 1_000_000
"""Several times the nodes of the largest machine; a list of more is a mistake or an attack."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_BRACKETED = re.compile(r"(\[[^\[\]]*\])")
_COMMA = re.compile(",")
_PIECE = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_HALF_RANGE = re.compile(r"(.*[\[,]\d{1,18})-\d*\+?", re.ASCII | re.DOTALL)
_TAIL = re.compile(r"(.*?)(\d{1,18})([^\d]*)", re.ASCII | re.DOTALL)
_SHOWN = 60

Span = tuple[int, int, int]
"""Low bound, high bound, width."""


def expanded(text: str) -> tuple[str, ...]:
    """Expand a hostlist to its names, each once, in order of first appearance.

    Parameters
    ----------
    text : str
        Names separated by commas. Brackets hold numbers and ranges, whose numbers are padded to the width of the low
        bound; a name may have several brackets.

    Raises
    ------
    LogError
        If brackets do not match, a range is invalid, or there are more than a million names, counting repeated ones.

    References
    ----------
    Slurm, "Hostlist expressions" in scontrol(1).

    Examples
    --------
    >>> expanded("cpn-[01-02],d[9-11]n[3,05]")
    ('cpn-01', 'cpn-02', 'd9n3', 'd9n05', 'd10n3', 'd10n05', 'd11n3', 'd11n05')
    """
    parts = [_BRACKETS.split(piece) for piece in _pieces(text)]
    spans = [[_spans(ranges, text) for ranges in part[1::2]] for part in parts]
    if sum(math.prod(map(_size, some)) for some in spans) > MOST_NODES:
        raise LogError(f"Expected at most {MOST_NODES:,} nodes in a list, got more ({_shown(text)}).")
    names = itertools.chain.from_iterable(_products(part[::2], some) for part, some in zip(parts, spans, strict=True))
    return tuple(dict.fromkeys(names))


def known_part(text: str) -> tuple[str, ...]:
    """Expand a hostlist that was cut off to the names that it certainly held.

    The part after the last comma may be half a name and is left out; of half a range, the low bound is kept.

    Raises
    ------
    LogError
        If the rest is not a hostlist either.

    Examples
    --------
    >>> known_part("n[01-03,07-1"), known_part("a1,a2,a")
    (('n01', 'n02', 'n03', 'n07'), ('a1', 'a2'))
    """
    half = _HALF_RANGE.fullmatch(text)
    if half is not None and text.count("[") > text.count("]"):
        return expanded(f"{half[1]}]")
    whole, comma, _ = text.rpartition(",")
    if not comma:
        return ()
    return expanded(f"{whole}]" if whole.count("[") > whole.count("]") else whole)


def pieces(text: str) -> list[str]:
    """Split a hostlist into pieces: each a name, or a name with one number or range in its bracket.

    Pieces recur in other lists more often than whole lists do, so their expansions are worth caching. A piece is only
    checked when it is expanded.

    Raises
    ------
    LogError
        If brackets do not match.

    Examples
    --------
    >>> pieces("n[01-04,7]-ib,m1,r[1-2]c[3,4]")
    ['n[01-04]-ib', 'n[7]-ib', 'm1', 'r[1-2]c[3,4]']
    """
    head, _, ranges = text.partition("[")
    if ranges and ranges.find("]") == len(ranges) - 1 and "," not in head:
        return [f"{head}[{part}]" for part in ranges[:-1].split(",")]
    found = []
    for piece in _pieces(text):
        if piece.count("[") == 1 and "," in piece:
            head, _, rest = piece.partition("[")
            ranges, _, tail = rest.partition("]")
            found += [f"{head}[{part}]{tail}" for part in ranges.split(",")]
        else:
            found.append(piece)
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Expand a set such as `0-3,7` or `0-3 7` to its numbers, each once, in order of appearance; may be empty.

    Raises
    ------
    LogError
        If a part is neither a number nor a range, or there are more than a million numbers.

    Examples
    --------
    >>> numbers("21-22,5 7-8")
    (21, 22, 5, 7, 8)
    """
    spans = _spans(",".join(text.replace(",", " ").split()), text) if text.strip() else []
    if _size(spans) > MOST_NODES:
        raise LogError(f"Expected at most {MOST_NODES:,} numbers in a set, got more ({_shown(text)}).")
    return tuple(dict.fromkeys(itertools.chain.from_iterable(range(low, high + 1) for low, high, _ in spans)))


def folded(names: Iterable[str]) -> str:
    """Fold names into a short hostlist, sorted by name and number; it expands to the same names.

    Examples
    --------
    >>> folded(["n07", "n09", "n08", "login", "n10"])
    'login,n[07-10]'
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain = []
    for name in set(names):
        found = _TAIL.fullmatch(name)
        if found is None:
            plain.append(name)
            continue
        head, digits, tail = found.groups()
        groups.setdefault((head, tail, len(digits)), []).append(int(digits))
    parts = sorted(plain)
    for (head, tail, width), values in sorted(groups.items()):
        runs = consecutive(sorted(values))
        shown = ",".join(f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs)
        parts.append(f"{head}{shown}{tail}" if len(values) == 1 else f"{head}[{shown}]{tail}")
    return ",".join(parts)


def outer_parts(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split a text at separators that are outside brackets.

    Examples
    --------
    >>> outer_parts("a[1,2]b,c", re.compile(","))
    ['a[1,2]b', 'c']
    """
    if "[" not in text:
        return separator.split(text)
    parts = [""]
    for part in _BRACKETED.split(text):
        first, *others = [part] if part.startswith("[") else separator.split(part)
        parts[-1] += first
        parts += others
    return parts


def _pieces(text: str) -> list[str]:
    """Split a hostlist at commas that are outside brackets, and check its parts."""
    pieces = [piece.strip() for piece in outer_parts(text, _COMMA)]
    for piece in pieces:
        if not _PIECE.fullmatch(piece):
            raise LogError(f"Expected a list of nodes such as n[01-04,7],m1, got {_shown(text)}.")
    return pieces


def _spans(ranges: str, text: str) -> list[Span]:
    """Low bound, high bound and width of each number or range."""
    spans = []
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise LogError(f"Expected numbers and ranges such as 01-04,7, got {part[:_SHOWN]!r} ({_shown(text)}).")
        spans.append((int(found[1]), int(found[2] or found[1]), len(found[1])))
    return spans


def _size(spans: list[Span]) -> int:
    return sum(high - low + 1 for low, high, _ in spans)


def _products(literals: list[str], spans: list[list[Span]]) -> Iterable[str]:
    """All names made by putting the spans' numbers between the literals."""
    columns = [[f"{value:0{width}}" for low, high, width in span for value in range(low, high + 1)] for span in spans]
    if len(columns) == 1:
        head, tail = literals
        return (f"{head}{value}{tail}" for value in columns[0])
    return (
        "".join(itertools.chain.from_iterable(zip(literals, (*values, ""), strict=True)))
        for values in itertools.product(*columns)
    )


def consecutive(values: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    cuts = [at for at in range(1, len(values)) if values[at] != values[at - 1] + 1]
    return [(values[a], values[b - 1]) for a, b in itertools.pairwise((0, *cuts, len(values)))]


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
