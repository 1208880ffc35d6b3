"""Expand and fold hostlists, `cpn-f13-03-[01-02],d13n[03,05,07-08]`, and sets of numbers, `0-3,7`.

ClusterShell sorts names, takes `!`, `&` and `/` for operators and refuses `n[01-3]`, which schedulers write.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from bftrainer.errors import LogError

MOST_NODES = 1_000_000
"""Several times the nodes of the largest machine; a list of more is a mistake or an attack."""

_BRACKETED = re.compile(r"(\[[^\[\]]*\])")
_COMMA = re.compile(",")
_PIECE = re.compile(r"(?:[^\[\],\s]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_HALF_RANGE = re.compile(r"(.*[\[,]\d{1,18})-\d*\+?", re.ASCII | re.DOTALL)
BRACKETS = set("[],")
"""Names with these cannot be told in a hostlist."""
_TAIL = re.compile(r"(.*?)(\d{1,18})([^\d]*)", re.ASCII | re.DOTALL)
_SHOWN = 60


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Expand a hostlist (Slurm, scontrol(1)) to its names, each once, in order of first appearance.

    Numbers are padded to the width of their range's low bound. What is malformed, or has more than a million names,
    counting repeated ones, is a `LogError`.

    >>> expand_hostlist("cpn-[01-02],d[9-11]n[3,05]")
    ('cpn-01', 'cpn-02', 'd9n3', 'd9n05', 'd10n3', 'd10n05', 'd11n3', 'd11n05')
    """
    names: list[str] = []
    for piece in map(str.strip, outer_parts(text, _COMMA)):
        if not _PIECE.fullmatch(piece):
            raise LogError(f"Expected a list of nodes such as n[01-04,7],m1, got {_excerpt(text)}.")
        sections, count = list[list[str]](), 1
        for section in _BRACKETED.split(piece):
            ranges = _parse_ranges(section[1:-1], text) if section.startswith("[") else []
            count *= sum(len(values) for values, _ in ranges) or 1
            if len(names) + count > MOST_NODES:  # before they are spelled out
                raise LogError(f"Expected at most {MOST_NODES:,} nodes in a list, got more ({_excerpt(text)}).")
            numbers = [f"{value:0{width}}" for values, width in ranges for value in values]
            sections.append(numbers or [section])
        names += map("".join, itertools.product(*sections))
    return tuple(dict.fromkeys(names))


def certain_names(text: str) -> tuple[str, ...]:
    """Expand a hostlist that was cut off to the names that it certainly held: half a name is left out.

    >>> certain_names("n[01-03,07-1"), certain_names("a1,a2,a")
    (('n01', 'n02', 'n03', 'n07'), ('a1', 'a2'))
    """
    is_open = text.count("[") > text.count("]")
    half = _HALF_RANGE.fullmatch(text) if is_open else None
    certain = half[1] if half else text.rpartition(",")[0]
    return expand_hostlist(f"{certain}]" if certain.count("[") > certain.count("]") else certain) if certain else ()


def numbers(text: str) -> list[int]:
    """Expand a set such as `0-3,7` or `0-3 7` to its numbers, each once, in order of appearance; may be empty."""
    ranges = ",".join(text.replace(",", " ").split())
    return list(dict.fromkeys(map(int, expand_hostlist(f"[{ranges}]")))) if ranges else []


def fold_hostlist(names: Iterable[str]) -> str:
    """Fold names into a short hostlist, sorted by name and number: `login,n[07-10]`."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    pieces = []
    for name in sorted(set(names)):
        match = _TAIL.fullmatch(name)
        if match is None:
            pieces.append(name)
        else:
            groups.setdefault((match[1], match[3], len(match[2])), []).append(int(match[2]))
    for (head, tail, width), values in sorted(groups.items()):
        runs = itertools.groupby(enumerate(values), lambda pair: pair[1] - pair[0])  # consecutive numbers differ alike
        bounds = [[f"{value:0{width}}" for _, value in run] for _, run in runs]
        shown = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in bounds)
        pieces.append(f"{head}{shown}{tail}" if len(values) == 1 else f"{head}[{shown}]{tail}")
    return ",".join(pieces)


def outer_parts(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split a text at separators that are outside brackets."""
    pieces = [""]
    for section in _BRACKETED.split(text):
        first, *following = [section] if section.startswith("[") else separator.split(section)
        pieces[-1] += first
        pieces += following
    return pieces


def _parse_ranges(ranges: str, text: str) -> list[tuple[range, int]]:
    """Numbers, and the width to which they are padded, of each range."""
    parsed = []
    for bounds in ranges.split(","):
        match = _RANGE.fullmatch(bounds)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            got = f"{bounds[:_SHOWN]!r} ({_excerpt(text)})"
            raise LogError(f"Expected numbers and ranges such as 01-04,7, got {got}.")
        parsed.append((range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1])))
    return parsed


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
