"""Names of nodes in locations of jobs: lists with any separator, and blocks of a Blue Gene."""

from __future__ import annotations

import re

from bftrainer.errors import LogError
from bftrainer.nodelogs.hostlist import expanded, numbers, outer_parts

MIDPLANE = 512
"""Nodes of a midplane."""

_BLUE_GENE_P = re.compile(
    r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d{1,6})", re.ASCII
)
_BLUE_GENE_Q = re.compile(r"(?:MIR|CET|VST)-(?:\S+-)?\d{1,6}", re.ASCII)
_SEPARATOR = re.compile(r"[,:;|+\s]+")
_QUOTES = re.compile("['\"]")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)


def is_whole_block(text: str) -> bool | None:
    """Whether a location is a block of a Blue Gene whose midplanes are known and filled; None if it is no block.

    Blocks of a Blue Gene/Q do not name their midplanes.
    """
    if _BLUE_GENE_Q.fullmatch(text):
        return False
    return True if _BLUE_GENE_P.fullmatch(text) else None


def expand_location(text: str) -> tuple[str, ...]:
    """Nodes of a location, each once; of a Blue Gene/P its midplanes.

    Examples
    --------
    >>> expand_location("3-5:9"), expand_location("ANL-R07-R10-2048")
    (('3', '4', '5', '9'), ('ANL-R07-M0', 'ANL-R07-M1', 'ANL-R10-M0', 'ANL-R10-M1'))
    """
    if _BLUE_GENE_Q.fullmatch(text):
        return ()
    if (rows := _BLUE_GENE_P.fullmatch(text)) is not None:
        return _racks(text, *rows.groups())
    if text.startswith("[") and text.endswith("]") and text.count("[") == 1:
        text = text[1:-1]
    text = _QUOTES.sub("", text)
    names: dict[str, None] = {}
    for part in filter(None, outer_parts(text, _SEPARATOR)):
        names.update(dict.fromkeys(map(str, numbers(part)) if _RANGE.fullmatch(part) else expanded(part)))
    return tuple(names)


def _racks(text: str, machine: str, first: str, last: str | None, midplane: str | None, size: str) -> tuple[str, ...]:
    """Midplanes of racks, whose numbers are octal: a digit for the row, one for the column."""
    racks = range(int(first, 8), int(last or first, 8) + 1)
    halves = "01" if midplane is None else midplane
    names = tuple(f"{machine}-R{rack:02o}-M{half}" for rack in racks for half in halves)
    is_part = len(names) == 1 and int(size) < MIDPLANE
    if not is_part and len(names) * MIDPLANE != int(size):
        raise LogError(f"Expected a block of {len(names) * MIDPLANE:,} nodes in its racks, got {text!r}.")
    return names
