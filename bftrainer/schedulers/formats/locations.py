"""Where jobs of Argonne's machines ran: lists of nodes, and blocks of Blue Gene midplanes."""

from __future__ import annotations

import itertools
import re

from bftrainer.errors import HostlistError
from bftrainer.nodelogs.hostlist import expanded, numbers, outer_parts

__all__ = ["MIDPLANE", "is_blue_gene", "located"]

MIDPLANE = 512
"""Nodes of a midplane, on Blue Gene/P and /Q alike."""

_TORUS = (8, 12, 16, 16, 2)
_EDGE = 4
_BLUE_GENE_P = re.compile(r"([A-Z]{3})-R([0-7]{2})(?:-R([0-7]{2}))?(?:-M([01]))?(?:-N\d\d)?(?:-J\d\d)?-(\d+)", re.ASCII)
_BLUE_GENE_Q = re.compile(r"([A-Z]{3})-([0-9A-F]{4}[01])-([0-9A-F]{4}[01])-(\d+)", re.ASCII)
_SEPARATOR = re.compile(r"[,:+\s]+")
_RANGE = re.compile(r"\d+-\d+", re.ASCII)


def is_blue_gene(text: str) -> bool:
    """Whether a location is a block of a Blue Gene."""
    return bool(_BLUE_GENE_P.fullmatch(text) or _BLUE_GENE_Q.fullmatch(text))


def located(text: str) -> tuple[str, ...]:
    """Nodes of a location, each once; of a Blue Gene its midplanes.

    Parameters
    ----------
    text : str
        `nid1:nid2`, `12-15,17`, a hostlist; racks and midplanes of a Blue Gene/P (`ANL-R00-M0-512`,
        `ANL-R00-R03-4096`); or two corners of a box in a Blue Gene/Q's torus of 8 x 12 x 16 x 16 x 2
        (`MIR-04000-7BFF1-32768`: A to E in hexadecimal digits), whose midplanes are 4 x 4 x 4 x 4 x 2 and named by
        their lower corner.

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
    if (rows := _BLUE_GENE_P.fullmatch(text)) is not None:
        return _racks(text, *rows.groups())
    if (box := _BLUE_GENE_Q.fullmatch(text)) is not None:
        return _box(text, *box.groups())
    names: dict[str, None] = {}
    for part in filter(None, outer_parts(text, _SEPARATOR)):
        names.update(dict.fromkeys(map(str, numbers(part)) if _RANGE.fullmatch(part) else expanded(part)))
    return tuple(names)


def _racks(text: str, machine: str, first: str, last: str | None, midplane: str | None, size: str) -> tuple[str, ...]:
    """Midplanes of racks, which are numbered by row and column of eight."""
    racks = range(int(first, 8), int(last or first, 8) + 1)
    halves = "01" if midplane is None else midplane
    names = tuple(f"{machine}-R{rack:02o}-M{half}" for rack in racks for half in halves)
    _check_size(text, len(names), int(size))
    return names


def _box(text: str, machine: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Midplanes that a box touches; a box may reach around the torus."""
    sides, nodes = [], 1
    for first, last, length in zip(map(_hex, low), map(_hex, high), _TORUS, strict=True):
        extent = (last - first) % length + 1
        nodes *= extent
        sides.append(sorted({(first + step) % length // _EDGE * _EDGE for step in range(extent)}))
    if nodes != int(size):
        raise HostlistError(f"Expected a block of {nodes:,} nodes between its corners, got {text!r}.")
    return tuple(f"{machine}-{a:X}{b:X}{c:X}{d:X}0" for a, b, c, d in itertools.product(*sides[:4]))


def _check_size(text: str, midplanes: int, size: int) -> None:
    is_part = midplanes == 1 and size < MIDPLANE
    if not is_part and midplanes * MIDPLANE != size:
        raise HostlistError(f"Expected a block of {midplanes * MIDPLANE:,} nodes in its racks, got {text!r}.")


def _hex(digit: str) -> int:
    return int(digit, 16)
