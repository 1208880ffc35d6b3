"""Expand and fold hostlists, `cpn-f13-03-[01-02],d13n[03,05,07-08]`, and sets of numbers, `0-3,7`.

ClusterShell sorts names, takes `!`, `&` and `/` for operators and refuses `n[01-3]`, which schedulers write.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

from bftrainer.errors import HostlistError

MOST_NODES = 1_000_000
"""Several times the nodes of the largest machine; a list of more is a mistake or an attack."""

_BRACKETED = re.compile(r"(\[[^\[\]]*\])")
_COMMA = re.compile(",")
_PIECE = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_HALF_RANGE = re.compile(r"(.*[\[,]\d{1,18})-\d*\+?", re.ASCII | re.DOTALL)
_TAIL = re.compile(r"(.*?)(\d{1,18})([^\d]*)", re.ASCII | re.DOTALL)
_SHOWN = 60


def expanded(text: str) -> tuple[str, ...]:
    """Expand a hostlist to its names, each once, in order of first appearance.

    Parameters
    ----------
    text : str
        Names separated by commas. Brackets hold numbers and ranges, whose numbers are padded to the width of the low
        bound; a name may have several brackets.

    Raises
    ------
    HostlistError
        If brackets do not match, a range is invalid, or there are more than a million names, counting repeated ones.

    References
    ----------
    Slurm, "Hostlist expressions" in scontrol(1).

    Examples
    --------
    >>> expanded("cpn-[01-02],d[9-11]n[3,05]")
    ('cpn-01', 'cpn-02', 'd9n3', 'd9n05', 'd10n3', 'd10n05', 'd11n3', 'd11n05')
    """
    pieces: list[list[list[str] | list[Range]]] = []
    for piece in map(str.strip, outer_parts(text, _COMMA)):
        if not _PIECE.fullmatch(piece):
            raise HostlistError(f"Expected a list of nodes such as n[01-04,7],m1, got {_excerpt(text)}.")
        parts = _BRACKETED.split(piece)
        pieces.append([_parse_ranges(part[1:-1], text) if part.startswith("[") else [part] for part in parts])
    if sum(math.prod(map(_size, parts)) for parts in pieces) > MOST_NODES:
        raise HostlistError(f"Expected at most {MOST_NODES:,} nodes in a list, got more ({_excerpt(text)}).")
    names = (itertools.product(*map(_texts, parts)) for parts in pieces)
    return tuple(dict.fromkeys(map("".join, itertools.chain.from_iterable(names))))


def known_part(text: str) -> tuple[str, ...]:
    """Expand a hostlist that was cut off to the names that it certainly held.

    The part after the last comma may be half a name and is left out; of half a range, the low bound is kept.

    Raises
    ------
    HostlistError
        If the rest is not a hostlist either.

    Examples
    --------
    >>> known_part("n[01-03,07-1"), known_part("a1,a2,a")
    (('n01', 'n02', 'n03', 'n07'), ('a1', 'a2'))
    """
    is_open = text.count("[") > text.count("]")
    half = _HALF_RANGE.fullmatch(text) if is_open else None
    whole = half[1] if half else text.rpartition(",")[0]
    return expanded(f"{whole}]" if whole.count("[") > whole.count("]") else whole) if whole else ()


def numbers(text: str) -> tuple[int, ...]:
    """Expand a set such as `0-3,7` or `0-3 7` to its numbers, each once, in order of appearance; may be empty.

    Raises
    ------
    HostlistError
        If a part is neither a number nor a range, or there are more than a million numbers.

    Examples
    --------
    >>> numbers("21-22,5 7-8")
    (21, 22, 5, 7, 8)
    """
    ranges = _parse_ranges(",".join(text.replace(",", " ").split()), text) if text.strip() else []
    if _size(ranges) > MOST_NODES:
        raise HostlistError(f"Expected at most {MOST_NODES:,} numbers in a set, got more ({_excerpt(text)}).")
    return tuple(dict.fromkeys(itertools.chain.from_iterable(values for values, _ in ranges)))


def folded(names: Iterable[str]) -> str:
    """Fold names into a short hostlist, sorted by name and number; it expands to the same names.

    Examples
    --------
    >>> folded(["n07", "n09", "n08", "login", "n10"])
    'login,n[07-10]'
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    parts = []
    for name in sorted(set(names)):
        found = _TAIL.fullmatch(name)
        if found is None:
            parts.append(name)
        else:
            groups.setdefault((found[1], found[3], len(found[2])), []).append(int(found[2]))
    for (head, tail, width), values in sorted(groups.items()):
        runs = itertools.groupby(enumerate(values), lambda pair: pair[1] - pair[0])  # consecutive numbers differ alike
        bounds = [[f"{value:0{width}}" for _, value in run] for _, run in runs]
        shown = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in bounds)
        parts.append(f"{head}{shown}{tail}" if len(values) == 1 else f"{head}[{shown}]{tail}")
    return ",".join(parts)


def outer_parts(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split a text at separators that are outside brackets.

    Examples
    --------
    >>> outer_parts("a[1,2]b,c", re.compile(","))
    ['a[1,2]b', 'c']
    """
    parts = [""]
    for part in _BRACKETED.split(text):
        first, *others = [part] if part.startswith("[") else separator.split(part)
        parts[-1] += first
        parts += others
    return parts


Range = tuple[range, int]
"""Numbers, and the width to which they are padded."""


def _parse_ranges(ranges: str, text: str) -> list[Range]:
    found = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            got = f"{part[:_SHOWN]!r} ({_excerpt(text)})"
            raise HostlistError(f"Expected numbers and ranges such as 01-04,7, got {got}.")
        found.append((range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1])))
    return found


def _size(part: list[str] | list[Range]) -> int:
    return sum(1 if isinstance(each, str) else each[0].stop - each[0].start for each in part)


def _texts(part: list[str] | list[Range]) -> list[str]:
    """A part of a name as all its texts: itself, or its numbers."""
    texts = ([each] if isinstance(each, str) else [f"{value:0{each[1]}}" for value in each[0]] for each in part)
    return list(itertools.chain.from_iterable(texts))


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
