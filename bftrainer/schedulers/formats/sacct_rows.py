"""Rows of `sacct -P`: headers, the layout they give, and the columns of a block of rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import LogError, SettingsError, suggestion
from bftrainer.files.log_files import Block
from bftrainer.files.opening import one_line
from bftrainer.schedulers.reading import Reading

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Columns of a file, and their positions."""

    columns: Mapping[str, int]
    count: int
    free: int | None
    trailing_bar: bool

    @classmethod
    def of(cls, names: Sequence[str], place: str, *, trailing_bar: bool) -> Layout:
        """Layout of columns with these names."""
        known = {name.lower(): name for name in _KNOWN}
        columns = {known[name.lower()]: at for at, name in enumerate(names) if name.lower() in known}
        missing = next((name for name in NEEDED if name not in columns), None)
        if missing is not None:
            raise LogError(f"{place}: Expected a column {missing}, got none.{suggestion(missing, names)}")
        free = [at for at, name in enumerate(names) if name.lower() in _FREE]
        return cls(columns, len(names), free[0] if len(free) == 1 else None, trailing_bar)

    def cells(self, line: str) -> list[str] | None:
        """Cells of a line that has more or fewer bars than columns; None if they do not fit.

        More bars than columns are those of the only column that may have some.
        """
        cells = (line.removesuffix("|") if self.trailing_bar else line).split("|")
        surplus = len(cells) - self.count
        if surplus > 0 and self.free is not None:
            after = self.free + surplus + 1
            cells[self.free : after] = ["|".join(cells[self.free : after])]
        return cells if len(cells) == self.count else None


def layout_of(block: Block, names: Sequence[str] | None) -> Layout:
    """Columns of a file that begins with this block, by its header or else by the settings."""
    at = next((at for at, line in enumerate(block.lines) if line), 0)
    line, place = block.lines[at], f"{block.path}:{block.first + at}"
    trailing_bar = line.endswith("|")
    if _is_header(line):
        return Layout.of(line.removesuffix("|").split("|"), place, trailing_bar=trailing_bar)
    if "|" not in line:
        raise LogError(f"{place}: Expected columns between bars (sacct -P), got {one_line(line[:60])!r}.")
    if names is None:
        is_xdmod = line.count("|") >= len(XDMOD_COLUMNS) - 1
        hint = "; --preset xdmod of `import --format table` names them" if is_xdmod else ""
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
    heads = [at for at in others if is_whole_header(block.lines[at])] if others else []
    for low, high in itertools.pairwise(sorted({0, *heads, block.bounds.size - 1})):
        section = block.part(low, high) if heads else block
        if section.data.strip(b"\r\n"):
            yield section, low in heads


def is_whole_header(line: str) -> bool:
    """Whether a line names all columns that are needed."""
    return {name.lower() for name in NEEDED} <= {name.lower() for name in line.split("|")}


@dataclass(frozen=True, slots=True, eq=False)
class SacctRows:
    """Rows of a block."""

    block: Block
    at: NDArray[np.int64]
    columns: Mapping[str, pa.Array]

    def where(self, rows: NDArray[np.bool_]) -> SacctRows:
        """The rows that `rows` marks."""
        import pyarrow as pa

        mask = pa.array(rows)
        return SacctRows(self.block, self.at[rows], {name: some.filter(mask) for name, some in self.columns.items()})

    def text(self, name: str, at: int) -> str:
        """A cell; empty if there is no such column."""
        return str(self.columns[name][at].as_py()) if name in self.columns else ""

    def encode(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Index of each cell into the distinct texts of a column, and these in order of appearance."""
        if name not in self.columns:
            return np.zeros(self.at.size, dtype=np.int32), [""]
        coded = self.columns[name].dictionary_encode()
        return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def read_rows(block: Block, layout: Layout, reading: Reading) -> SacctRows:
    """The rows of a section, counted in the tally; those with too few or too many columns are refused."""
    import pyarrow as pa
    from pyarrow import csv

    odd: list[csv.InvalidRow] = []

    def put_aside(row: csv.InvalidRow) -> str:
        odd.append(row)
        return "skip"

    begins, ends = block.bounds[:-1], block.bounds[1:] - 1
    is_head = is_whole_header(block.data[: ends[0]].decode().removesuffix("\r"))
    first = int(begins[1]) if is_head and begins.size > 1 else len(block.data) if is_head else 0
    data = np.frombuffer(block.data + b"\n", dtype=np.uint8)
    is_row = ends - begins > (data[np.maximum(ends - 1, 0)] == ord("\r"))
    is_row[0] &= not is_head
    at = np.flatnonzero(is_row)
    reading.tally.records += at.size
    names = {place: name for name, place in layout.columns.items()}
    columns = [names.get(place, f"#{place}") for place in range(layout.count + layout.trailing_bar)]
    table = csv.read_csv(
        pa.BufferReader(block.data[first:] + b"\n"),
        csv.ReadOptions(column_names=columns, use_threads=False, block_size=max(len(block.data), 1) + 1),
        csv.ParseOptions(delimiter="|", quote_char=False, invalid_row_handler=put_aside),
        csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=False,
            include_columns=[*names.values()],
        ),
    )
    kept = np.delete(at, [row.number - 1 for row in odd])
    mended: dict[int, list[str]] = {}
    for row in odd:
        line = int(at[row.number - 1])
        if (cells := layout.cells(block.lines[line])) is not None:
            mended[line] = cells
        else:
            found = block.lines[line].removesuffix("|" if layout.trailing_bar else "").count("|") + 1
            detail = f"Expected {layout.count} columns, got {found}"
            reading.refuse("wrong number of columns", block, line, detail)
    if mended:
        more: dict[str, Any] = {name: [cells[place] for cells in mended.values()] for place, name in names.items()}
        kept = np.append(kept, np.array(list(mended), dtype=np.int64))
        order = np.argsort(kept, kind="stable")
        kept, table = kept[order], pa.concat_tables([table, pa.table(more, schema=table.schema)]).take(order)
    return SacctRows(block, kept, {name: table[name].combine_chunks() for name in names.values()})
