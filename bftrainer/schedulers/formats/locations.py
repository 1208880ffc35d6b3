"""Names of nodes in locations of jobs: lists with any separator, and blocks of a Blue Gene."""

from __future__ import annotations

import itertools
import re

from bftrainer.errors import HostlistError
from bftrainer.nodelogs.hostlist import expanded, numbers, outer_parts

MIDPLANE = 512
"""Nodes of a midplane, on Blue Gene/P and /Q alike."""

_TORUS = (8, 12, 16, 16)
"""Nodes along A to D of Mira's torus; E, of two nodes, is whole in every midplane."""
_EDGE = 4
_BLUE_GENE_P = re.compile(
    r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d{1,6})", re.ASCII
)
_BLUE_GENE_Q = re.compile(
    r"(?:MIR|CET|VST)-(?:([0-9A-F]{4})[01]-([0-9A-F]{4})[01]-(?:\d+-)?)?(?:\S+-)?(\d{1,6})", re.ASCII
)
_SEPARATOR = re.compile(r"[,:;|+\s]+")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)


def is_whole_block(text: str) -> bool | None:
    """Whether a location is a block of a Blue Gene whose midplanes are known and filled; None if it is no block.

    Of a Blue Gene/Q the corners tell them, and only Mira's torus is known: racks, and blocks of less than a midplane
    or of other machines, may share midplanes with others.
    """
    if (found := _BLUE_GENE_Q.fullmatch(text)) is not None:
        return text.startswith("MIR") and found[1] is not None and int(found[3]) >= MIDPLANE
    return True if _BLUE_GENE_P.fullmatch(text) else None


def located(text: str) -> tuple[str, ...]:
    """Nodes of a location, each once; of a Blue Gene its midplanes.

    Parameters
    ----------
    text : str
        `nid1:nid2`, `12-15,17`, `[12, 15]`, a hostlist; racks and midplanes of a Blue Gene/P (`ANL-R00-M0-512`,
        `ANL-R00-R03-4096`); or two corners in Mira's torus, a hexadecimal digit for each of A to E, perhaps a counter,
        and the number of nodes (`MIR-04000-7BFF1-32768`, `MIR-00C80-33FF1-1-1024`). A midplane is named by its lower
        corner. Other blocks of a Blue Gene/Q have no nodes that could be told.

    Raises
    ------
    HostlistError
        If it is none of these, or a block has another size than its name says.

    References
    ----------
    Chen et al., "The IBM Blue Gene/Q interconnection network and message unit", SC 2011, doi:10.1145/2063384.2063419.

    Examples
    --------
    >>> located("3-5:9"), located("ANL-R07-R10-2048")
    (('3', '4', '5', '9'), ('ANL-R07-M0', 'ANL-R07-M1', 'ANL-R10-M0', 'ANL-R10-M1'))
    >>> located("MIR-04000-37FF1-8192")[:3]
    ('MIR-04000', 'MIR-04040', 'MIR-04080')
    """
    if (box := _BLUE_GENE_Q.fullmatch(text)) is not None:
        return _midplanes(text, *box.groups()) if box[1] and text.startswith("MIR") else ()
    if (rows := _BLUE_GENE_P.fullmatch(text)) is not None:
        return _racks(text, *rows.groups())
    if text.startswith("[") and text.endswith("]") and text.count("[") == 1:
        text = text[1:-1]
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
        raise HostlistError(f"Expected a block of {len(names) * MIDPLANE:,} nodes in its racks, got {text!r}.")
    return names


def _midplanes(text: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Midplanes from the one that holds the first corner to that of the second, perhaps around the torus."""
    sides: list[list[int]] = []
    for first, last, length in zip(low, high, _TORUS, strict=True):
        begin, end = int(first, 16), int(last, 16)
        if max(begin, end) >= length:
            raise HostlistError(f"Expected corners in a torus of 8 x 12 x 16 x 16 x 2 nodes, got {text!r}.")
        count = (end // _EDGE - begin // _EDGE) % (length // _EDGE) + 1
        sides.append(sorted((begin // _EDGE + step) * _EDGE % length for step in range(count)))
    names = tuple(f"{text[:3]}-{a:X}{b:X}{c:X}{d:X}0" for a, b, c, d in itertools.product(*sides))
    is_part = len(names) == 1 and int(size) < MIDPLANE
    if not is_part and len(names) * MIDPLANE != int(size):
        raise HostlistError(f"Expected a block of {len(names) * MIDPLANE:,} nodes between its corners, got {text!r}.")
    return names
