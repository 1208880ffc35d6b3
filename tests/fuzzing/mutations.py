"""Damage to bytes, lines, fields and trees of values; each is drawn from a generator that the case seeds."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickletools
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# ruff: noqa: SIM905
NUMBERS = [
    *"0 -1 1 2 7 3.5 60 -0.0 0.1 1e-320 1e308 -1e308 1e309 nan inf -inf 2147483648 9223372036854775807".split(),
    *"9223372036854775808 -9223372036854775808 18446744073709551616 1e19 253402300800 0x10 1_0 ٣ ² 1e 100001".split(),
    *("", "9" * 29, "9" * 400),
]
TEXTS = [
    *("", " ", "\0", "\u202eab", "a" * 300, "a" * 20_000, "\udcff", "../beside/kept", "~", "%s", "{}", "'", '"', "\n"),
    *("\r", "\x1b[2J", "é", "None", "n[1-", "n[0-9999999]", "n[1-3]x[1-3]", "-", "--", "=1+1", "\ufeff", "a,b", "[]"),
    *("2021-02-10T00:00:05", "9999-12-31T23:59:59Z", "1677-09-21", "0001-01-01", "2021-02-30", "10x", "1%", "\u2028"),
]
_TOKEN = re.compile(rb"[-+]?\d[\w.+-]*|[A-Za-z_][\w]*|[^\w\s]")
_SEPARATORS = (b",", b"|", b";", b" ", b"\t", b"=", b":")


def encoded(text: str) -> bytes:
    """Text as a file holds it; lone surrogates stand for bytes that are no text."""
    return text.encode("utf-8", "surrogateescape")


def hostile(rng: Random) -> str:
    """A number at some bound, or a text that one would rather not get."""
    return rng.choice(NUMBERS if rng.random() < 0.6 else TEXTS)


def span(rng: Random, size: int, most: int = 64) -> slice:
    """A part of something of this size."""
    start = rng.randrange(size + 1)
    return slice(start, start + rng.randrange(1, most))


def flip(rng: Random, data: bytes) -> bytes:
    """Change bits."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: Random, data: bytes) -> bytes:
    """Break off, at either end."""
    at = rng.randrange(len(data) + 1)
    return data[:at] if rng.random() < 0.8 else data[at:]


def splice(rng: Random, data: bytes) -> bytes:
    """Put one part of the data, or noise, in the place of another."""
    here, there = span(rng, len(data)), span(rng, len(data))
    return data[: here.start] + rng.choice((data[there], b"", rng.randbytes(8), b"\0" * 8)) + data[here.stop :]


def of_parts(rng: Random, parts: list[bytes]) -> list[bytes]:
    """Leave out, repeat, exchange or shuffle some parts."""
    if not parts:
        return parts
    one, other, kind = rng.randrange(len(parts)), rng.randrange(len(parts)), rng.randrange(5)
    if kind == 0:
        return parts[:one] + parts[one + 1 :]
    if kind == 1:
        return parts[:one] + [parts[one]] * rng.choice((2, 3, 50)) + parts[one + 1 :]
    if kind == 2:
        parts[one], parts[other] = parts[other], parts[one]
        return parts
    if kind == 3:
        return parts[: max(one, 1)]
    return [*parts[:one], parts[other], *parts[one:]]


def lines(rng: Random, data: bytes) -> bytes:
    """Leave out, repeat or exchange lines."""
    return b"".join(of_parts(rng, data.splitlines(keepends=True)))


def fields(rng: Random, data: bytes) -> bytes:
    """Leave out, repeat or exchange fields of a line."""
    rows = data.splitlines(keepends=True)
    if not rows:
        return data
    at, by = rng.randrange(len(rows)), rng.choice(_SEPARATORS)
    rows[at] = by.join(of_parts(rng, rows[at].split(by)))
    return b"".join(rows)


def tokens(rng: Random, data: bytes) -> bytes:
    """Put something hostile in the place of a number, a word or a sign, or of all that are alike."""
    found = list(_TOKEN.finditer(data))
    if not found:
        return encoded(hostile(rng))
    one, new = rng.choice(found), encoded(hostile(rng))
    if rng.random() < 0.1:
        return data.replace(one[0], new, 1000)[:200_000]
    return data[: one.start()] + new + data[one.end() :]


def leaf(rng: Random) -> Any:
    """A value of any kind."""
    text = hostile(rng)
    kinds: list[Callable[[], Any]] = [
        lambda: text,
        lambda: rng.choice((0, -1, 1, 2**31, 2**63, 10**30, True, False)),
        lambda: rng.choice((0.0, -0.5, 1e308, float("nan"), float("inf"), 1e-320)),
        lambda: rng.choice(([], {}, [[]], [0], {"": 0}, [None], {"a": {"b": []}}, None)),
    ]
    return rng.choice(kinds)()


def tree(rng: Random, value: Any) -> Any:
    """Change one place of a tree of values: replace, drop, repeat, rename, wrap."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        deep: Any = value
        for _ in range(rng.choice((1, 1, 3, 101))):
            deep = [deep]
        return rng.choice((leaf(rng), leaf(rng), leaf(rng), deep))
    if isinstance(value, list):
        at = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value[:at] + [value[at]] * 2 + value[at + 1 :]
        return [*value[:at], tree(rng, value[at]), *value[at + 1 :]]
    key = rng.choice(list(value))
    kind = rng.randrange(7)
    if kind == 0:
        return {name: each for name, each in value.items() if name != key}
    if kind == 1:
        return {(hostile(rng) if name == key else name): each for name, each in value.items()}
    return {name: tree(rng, each) if name == key else each for name, each in value.items()}


def toml_text(value: Any) -> str:
    """A value as TOML, tables inline; what TOML lacks, it gets anyway."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_text(str(key))} = {toml_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value).lower() if isinstance(value, int | float | None) else value.isoformat()


def documents(rng: Random, data: bytes) -> bytes:
    """Change the tree of a document of JSON or TOML, or of a line of JSON."""
    for read in (json.loads, lambda text: tomllib.loads(text.decode())):
        try:
            value = read(data)
        except (ValueError, RecursionError):
            continue
        changed = tree(rng, value)
        if read is json.loads or not isinstance(changed, dict):
            return json.dumps(changed, default=str).encode()
        return encoded("\n".join(f"{toml_text(str(key))} = {toml_text(each)}" for key, each in changed.items()))
    rows = data.splitlines()
    at = rng.randrange(len(rows)) if rows else 0
    if len(rows) > 1 and rows[at].startswith(b"{"):
        rows[at] = documents(rng, rows[at])
    return b"\n".join(rows)


def opcodes(rng: Random, data: bytes) -> bytes:
    """Leave out, repeat, exchange steps of a pickle, or put others in."""
    try:
        starts = [place for _, _, place in pickletools.genops(data)]
    except Exception:  # whatever is wrong with it, it is no pickle
        return tokens(rng, data)
    steps = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    if rng.random() < 0.5:
        return b"".join(of_parts(rng, steps))
    new = (b"N", b"(", b"0", b"2", b"]", b"}", b")", b"\x81", b"R", b"b", b"u", b"e", b"t", b"\x94", b"K\x05", b"h\x00")
    more = (
        b"cos\nsystem\n",
        b"cpandas\nDataFrame\n",
        b"cnumpy\nndarray\n",
        b"J\xff\xff\xff\xff",
        b"\x8a\x09" + b"\xff" * 9,
    )
    steps.insert(rng.randrange(len(steps)), rng.choice((*new, *more)))
    return b"".join(steps)


_KINDS = (pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary(), pa.timestamp("s"), pa.date32())


def parquet(rng: Random, data: bytes) -> bytes:
    """Change columns of a table of Parquet, its rows, or what its schema says."""
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError, ValueError):
        return flip(rng, data)
    out = io.BytesIO()
    try:
        pq.write_table(_changed(rng, table), out)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
        return flip(rng, data)
    return out.getvalue()


def _changed(rng: Random, table: pa.Table) -> pa.Table:
    kind, at = rng.randrange(7), rng.randrange(max(table.num_columns, 1))
    if kind == 0:
        notes = {key: documents(rng, text) for key, text in (table.schema.metadata or {}).items()}
        return table.replace_schema_metadata(notes)
    if not table.num_columns:
        return table
    if kind == 1:
        return table.remove_column(at)
    if kind == 2:
        names = list(table.column_names)
        names[at] = rng.choice((hostile(rng), names[0])).encode("utf-8", "replace").decode()
        return table.rename_columns(names)
    if kind == 3:
        rows = [rng.randrange(max(len(table), 1)) for _ in range(rng.choice((0, 1, len(table))))]
        return table.take(pa.array(rows, pa.int64()))
    name, column = table.column_names[at], table.column(at)
    if kind == 4:
        wanted = rng.choice(_KINDS)
        return table.set_column(at, name, column.cast(wanted, safe=False))
    values = column.to_pylist()
    for _ in range(rng.choice((1, 1, len(values)))):
        row = rng.randrange(len(values))
        values[row] = rng.choice((None, tree(rng, values[row]), values[rng.randrange(len(values))]))
    kept = None if rng.random() < 0.3 else column.type
    return table.set_column(at, name, pa.array(values, kept))


def packed(rng: Random, data: bytes) -> bytes:
    """Pack the data in some way, and sometimes damage that."""
    done = rng.choice((gzip.compress, bz2.compress, lzma.compress, _zipped, _tarred, _twice))(data)
    return done if rng.random() < 0.5 else rng.choice((flip, cut, splice))(rng, done)


def _zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("log.swf", data)
    return out.getvalue()


def _tarred(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        entry = tarfile.TarInfo("../beside/kept.pkl")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _twice(data: bytes) -> bytes:
    return gzip.compress(data[: len(data) // 2], mtime=0) + gzip.compress(data[len(data) // 2 :], mtime=0)


@cache
def bombs() -> tuple[bytes, ...]:
    """Small files that unpack to 100 MiB."""
    piece = (b";" + 1022 * b"a" + b"\n") * 1024
    return tuple(pack(piece * 100) for pack in (gzip.compress, bz2.compress, lzma.compress))


_PLAIN = (flip, cut, splice, lines, lines, fields, fields, tokens, tokens, tokens, tokens)
_OWN: Sequence[tuple[tuple[str, ...], Callable[[Random, bytes], bytes]]] = (
    ((".toml", ".json", ".jsonl"), documents),
    ((".pkl",), opcodes),
    ((".parquet",), parquet),
)


def damaged(rng: Random, name: str, data: bytes) -> bytes:
    """What becomes of a file of this name: one to four damages, those of its form among them."""
    if rng.random() < 0.003:
        return rng.choice(bombs())
    own = [change for suffixes, change in _OWN if name.endswith(suffixes)]
    for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 4))):
        data = rng.choice((*_PLAIN, *own * 12))(rng, data)
    return packed(rng, data) if rng.random() < 0.04 else data
