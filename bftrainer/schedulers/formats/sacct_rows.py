"""Rows of `sacct -P`: headers, the layout they give, and the columns of a block of rows as places in its text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.fields import Fields
from bftrainer.files.log_files import Block
from bftrainer.files.opening import one_line
from bftrainer.schedulers.reading import Reading

NEEDED = ("Start", "End", "NodeList")
_KNOWN = (
    *(*NEEDED, "JobIDRaw", "JobID", "State", "NNodes", "Partition", "Elapsed", "ElapsedRaw", "Suspended"),
    *("Submit", "Timelimit", "Cluster", "AllocTRES"),
)
_FREE = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "workdir", "submitline", "extra", "wckey", "stdout"}
)
"""Columns whose text users choose."""
XDMOD_COLUMNS = (
    *("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit"),
    *("Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES"),
    *("AllocTRES", "Timelimit", "NodeList", "JobName"),
)
"""What XDMoD has sacct print, without a header: https://open.xdmod.org, "Slurm", the shredder's input."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a file, and their positions.

    Parameters
    ----------
    columns : mapping of str to int
        Those that the importer uses.
    count : int
        Number of columns.
    free : int or None
        The only column that may hold any text, and so bars, which sacct does not escape; None if several may.
    trailing_bar : bool
        Whether rows end in a bar, as `sacct -p` writes them.
    """

    columns: Mapping[str, int]
    count: int
    free: int | None
    trailing_bar: bool

    @classmethod
    def of(cls, names: Sequence[str], place: str, *, trailing_bar: bool) -> Layout:
        """Layout of columns with these names.

        Raises
        ------
        LogError
            If one that is needed is missing.
        """
        known = {name.lower(): name for name in _KNOWN}
        columns = {known[name.lower()]: at for at, name in enumerate(names) if name.lower() in known}
        missing = next((name for name in NEEDED if name not in columns), None)
        if missing is not None:
            raise LogError(f"{place}: Expected a column {missing}, got none.{suggestion(missing, names)}")
        free = [at for at, name in enumerate(names) if name.lower() in _FREE]
        return cls(columns, len(names), free[0] if len(free) == 1 else None, trailing_bar)


def layout_of(block: Block, names: Sequence[str] | None) -> Layout:
    """Columns of a file that begins with this block, by its header or else by the settings.

    Raises
    ------
    LogError
        If it is no table of sacct.
    SettingsError
        If neither names the columns.
    """
    at = next((at for at, line in enumerate(block.lines) if line), 0)
    line, place = block.lines[at], f"{block.path}:{block.first + at}"
    trailing_bar = line.endswith("|")
    if _is_header(line):
        return Layout.of(line.removesuffix("|").split("|"), place, trailing_bar=trailing_bar)
    if "|" not in line:
        raise LogError(f"{place}: Expected columns between bars (sacct -P), got {one_line(line[:60])!r}.")
    if names is None:
        hint = "; --preset xdmod of `import --format table` names them" if line.count("|") >= len(XDMOD_COLUMNS) - 1 else ""
        raise SettingsError(
            f"{place}: Expected a header, or --columns with the names of the columns, got neither{hint}."
        )
    return Layout.of(names, "--columns", trailing_bar=trailing_bar and line.count("|") == len(names))


def _is_header(line: str) -> bool:
    """Whether a line names columns; jobs have numbers."""
    names = {name.lower() for name in line.split("|")}
    return bool(names & {"jobid", "jobidraw", "nodelist"}) and not line[:1].isdigit()


def sections(block: Block) -> Iterator[tuple[Block, bool]]:
    """Split a block before each header; yield each part, and whether it begins with a header.

    Exports that were concatenated need not have the same columns.
    """
    begins = np.frombuffer(block.data + b"\n", dtype=np.uint8)[block.bounds[:-1]]
    # Jobs begin with a digit, empty lines with their end.
    others = np.flatnonzero(((begins < ord("0")) | (begins > ord("9"))) & (begins != ord("\n"))).tolist()
    heads = [at for at in others if _is_whole_header(block.lines[at])] if others else []
    for low, high in itertools.pairwise(sorted({0, *heads, block.bounds.size - 1})):
        section = block.part(low, high) if heads else block
        if section.data.strip(b"\r\n"):
            yield section, low in heads


def _is_whole_header(line: str) -> bool:
    return {name.lower() for name in NEEDED} <= {name.lower() for name in line.split("|")}


@dataclass(frozen=True, slots=True, eq=False)
class SacctRows:
    """Rows of a block.

    Parameters
    ----------
    block : Block
    at : ndarray of int64, shape (N,)
        Index of each row's line.
    columns : mapping of str to Fields
        Those that the layout knows.
    """

    block: Block
    at: NDArray[np.int64]
    columns: Mapping[str, Fields]

    @classmethod
    def of(cls, block: Block, layout: Layout, reading: Reading) -> SacctRows:
        """The rows of a section, counted in the tally; those with too few or too many columns are refused.

        More bars than columns are those of the only column that may have some.
        """
        data = np.frombuffer(block.data, dtype=np.uint8)
        begins, ends = block.bounds[:-1], block.bounds[1:] - 1
        ends = ends - Fields(data, begins, ends).end_with("\r")
        is_row = ends > begins
        is_row[0] &= not _is_whole_header(data[begins[0] : ends[0]].tobytes().decode())
        if layout.trailing_bar:
            ends = ends - Fields(data, begins, ends).end_with("|")
        bars = np.flatnonzero(data == ord("|"))
        first = np.searchsorted(bars, begins)
        found, wanted = np.searchsorted(bars, ends) - first, layout.count - 1
        reading.tally.records += int(is_row.sum())
        is_whole = (found == wanted) | ((found > wanted) & (layout.free is not None))
        for at in np.flatnonzero(is_row & ~is_whole).tolist():
            detail = f"Expected {layout.count} columns, got {found[at] + 1}"
            reading.refuse("wrong number of columns", block, at, detail)
        rows = np.flatnonzero(is_row & is_whole)
        first, begins, ends, surplus = first[rows], begins[rows], ends[rows], (found - wanted)[rows]

        def bar(at: int) -> NDArray[np.int64]:
            """Place of the bar behind a column."""
            return bars[first + at + (surplus if layout.free is not None and at >= layout.free else 0)]

        columns = {
            name: Fields(data, begins if at == 0 else bar(at - 1) + 1, ends if at == wanted else bar(at))
            for name, at in layout.columns.items()
        }
        return cls(block, rows, columns)

    def where(self, rows: NDArray[np.bool_]) -> SacctRows:
        """The rows that `rows` marks."""
        return SacctRows(self.block, self.at[rows], {name: some.where(rows) for name, some in self.columns.items()})
