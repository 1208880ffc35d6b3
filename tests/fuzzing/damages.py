"""Damage to bytes, lines, fields and trees of values, drawn by Hypothesis; what one would rather not get as a value."""

# ruff: noqa: SIM905
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
NUMBERS = [
    *"0 -1 1 2 7 3.5 60 -0.0 0.1 1e-320 1e308 -1e308 1e309 nan inf -inf 2147483648 9223372036854775807".split(),
    *"9223372036854775808 -9223372036854775808 1e19 253402300800 0x10 1_0 ٣ ² 1e".split(),
    *("", "9" * 29, "9" * 400),
]
TEXTS = [
    *("", " ", "\0", "\u202eab", "a" * 20_000, "\udcff", "../beside/kept", "~", "%s", "{}", "'", '"', "\n"),
    *("\r", "\x1b[2J", "é", "None", "n[1-", "n[0-9999999]", "n[1-3]x[1-3]", "--", "=1+1", "\ufeff", "a,b", "[]"),
    *("2021-02-10T00:00:05", "9999-12-31T23:59:59Z", "1677-09-21", "0001-01-01", "2021-02-30", "10x", "1%", "\u2028"),
]
HOSTILE = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS)
_LEAVES = HOSTILE | st.sampled_from([0, -1, 2**31, 2**63, 10**30, True, 1e308, float("nan"), [], {}, [[]], [0], None])
_TOKEN = re.compile(rb"[-+]?\d[\w.+-]*|[A-Za-z_][\w]*|[^\w\s]")


def encode(text: str) -> bytes:
    """Text as a file holds it; lone surrogates stand for bytes that are no text."""
    return text.encode("utf-8", "surrogateescape")


def place(draw: Draw, size: int) -> int:
    """A place in something of this size."""
    return int(draw(st.integers(0, max(size - 1, 0))))


def change_parts(draw: Draw, parts: list[bytes]) -> list[bytes]:
    """Leave out, repeat, exchange or break off parts."""
    one, other = place(draw, len(parts)), place(draw, len(parts))
    changes = [parts[:one] + parts[one + 1 :], parts[:one], parts[:one] + parts[one : one + 1] * 50 + parts[one:]]
    return draw(st.sampled_from([*changes, parts[:one] + parts[other : other + 1] + parts[one:]]))  # type: ignore[no-any-return]


def change_pieces(draw: Draw, data: bytes) -> bytes:
    """Leave out, repeat, exchange or break off lines, fields or bytes."""
    by_sixteen = [data[at : at + 16] for at in range(0, len(data), 16)]
    pieces = [data.splitlines(keepends=True), re.split(rb"([,|; \t=:\n])", data), by_sixteen]
    return b"".join(change_parts(draw, draw(st.sampled_from(pieces))))


def change_tokens(draw: Draw, data: bytes) -> bytes:
    """Put something hostile in the place of a number, a word or a sign."""
    tokens, new = list(_TOKEN.finditer(data)), encode(draw(HOSTILE))
    if not tokens:
        return new
    token = tokens[place(draw, len(tokens))]
    return data[: token.start()] + new + data[token.end() :]


def change_tree(draw: Draw, value: Any) -> Any:
    """Change one place of a tree of values: replace, wrap, drop, repeat or rename."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 7)) == 0:
        deep = value
        for _ in range(101):
            deep = [deep]
        return draw(_LEAVES | st.just(deep))
    kind = draw(st.integers(0, 5))
    if isinstance(value, list):
        at = place(draw, len(value))
        middle = [[], [value[at]] * 2][kind] if kind < 2 else [change_tree(draw, value[at])]
        return [*value[:at], *middle, *value[at + 1 :]]
    key = draw(st.sampled_from(list(value)))
    if kind == 0:
        return {name: part for name, part in value.items() if name != key}
    if kind == 1:
        return {(draw(HOSTILE) if name == key else name): part for name, part in value.items()}
    return {name: change_tree(draw, part) if name == key else part for name, part in value.items()}


def change_document(draw: Draw, data: bytes) -> bytes:
    """Change the tree of a document of JSON, or of a line of JSON."""
    try:
        return json.dumps(change_tree(draw, json.loads(data))).encode()
    except (ValueError, RecursionError):
        rows = data.splitlines()
    at = place(draw, len(rows))
    if len(rows) > 1 and rows[at].startswith(b"{"):
        rows[at] = change_document(draw, rows[at])
    return b"\n".join(rows)


def change_parquet(draw: Draw, data: bytes) -> bytes:
    """Leave out, rename or retype a column of a table of Parquet, or change one of its values."""
    out = io.BytesIO()
    try:
        table = pq.read_table(io.BytesIO(data))
        at = place(draw, table.num_columns)
        name, values, kind = table.column_names[at], table.column(at).to_pylist(), draw(st.integers(0, 3))
        row = place(draw, len(values))
        values[row : row + 1] = [draw(_LEAVES)]
        changed = [
            lambda: table.remove_column(at),
            lambda: table.rename_columns([draw(HOSTILE) if other == name else other for other in table.column_names]),
            lambda: table.set_column(at, name, pa.array(values)),
            lambda: table.set_column(at, name, pa.array(values, table.column(at).type)),
        ][kind]()
        pq.write_table(changed, out)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError, IndexError):
        return change_pieces(draw, data)
    return out.getvalue()


_PLAIN = (change_tokens, change_pieces, change_pieces, change_pieces)
_OWN = {".json": change_document, ".jsonl": change_document, ".parquet": change_parquet}


@st.composite
def damage(draw: Draw, name: str, data: bytes) -> bytes:
    """What becomes of a file of this name: one or two damages, mostly those of its form."""
    own = [change for suffix, change in _OWN.items() if name.endswith(suffix)]
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        data = draw(st.sampled_from([*own * 9, *_PLAIN]))(draw, data)
    return data
