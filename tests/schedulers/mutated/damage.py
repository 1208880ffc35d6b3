"""Damage to one record of a log, or to what stands around its records, and what must hold then."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzzing.mutations import hostile
from tests.schedulers.mutated.forms import Form

GARBAGE = [
    "",
    "?",
    "garbage",
    "é",
    "-",
    "n[1-",
    "nan",
    "inf",
    "None",
    "0x10",
    "1e999",
    '"',
    "a b",
    "'",
    "9" * 30,
    "{",
    "²",
]
"""In the place of a field: nothing that could be another number or node of the machine."""
_ODD_VALUES = ["", "garbage", None, [], {}, [[]], {"set": False, "number": 0}, float("nan"), "n[1-", True, "²"]
_GONE = object()

Outcome = Literal["same", "without", "accounted"]


@dataclass
class Content:
    """A file as its records and what stands around them.

    Parameters
    ----------
    form : Form
    head : list of str
        Lines above the records.
    records : list
        Lines, or values of JSON.
    around : dict
        The rest of a document, by key; the records stand under `key`.
    schema : Schema, optional
        Of a table.
    """

    form: Form
    head: list[str]
    records: list[Any]
    around: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    schema: pa.Schema | None = None

    @classmethod
    def of(cls, form: Form, data: bytes) -> Content:
        """Content of a file."""
        if form.kind == "parquet":
            table = pq.read_table(io.BytesIO(data))
            return cls(form, [], table.to_pylist(), schema=table.schema)
        if form.kind == "document":
            around = json.loads(data)
            key = next(name for name, value in around.items() if isinstance(value, list) and value)
            return cls(form, [], around[key], around, key)
        lines = data.decode().splitlines()
        records = lines[form.head :]
        return cls(
            form, lines[: form.head], [json.loads(each) for each in records] if form.kind == "objects" else records
        )

    def data(self) -> bytes:
        """Bytes of the file; two underscores and a sign stand for bytes that are no text."""
        if self.form.kind == "parquet":
            out = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(self.records, self.schema), out)
            return out.getvalue()
        if self.form.kind == "document":
            return _bytes(json.dumps(self.around | {self.key: self.records}, indent=1))
        some = self.records if self.form.kind == "lines" else map(json.dumps, self.records)
        return _bytes("".join(f"{line}\n" for line in (*self.head, *some)))

    def text(self, at: int) -> str:
        """A record as text."""
        record = self.records[at]
        return record if isinstance(record, str) else json.dumps(record, default=str)


def _bytes(text: str) -> bytes:
    return text.encode().replace(b"__?__", b"\xff\xfe\xe4")


@dataclass(frozen=True)
class Damage:
    """What was done to a file.

    Parameters
    ----------
    data : bytes
        The file now.
    at : int or None
        Index of the record that suffered; None if none did.
    outcome : {"same", "without", "accounted"}
        Whether all is read as before, all but the record, or the record is read, counted, or refused with its place.
    records : int
        How many more records there are now.
    line : int or None
        Number of the line that suffered, if one did.
    """

    data: bytes
    at: int | None = None
    outcome: Outcome = "accounted"
    records: int = 0
    line: int | None = None


Mutation = Callable[[Random, Content], Damage | None]
"""None where a form has nothing of the kind."""


def _one(rng: Random, content: Content) -> tuple[int, int | None]:
    """Index of a record, and its line if it has one of its own."""
    at = rng.randrange(len(content.records))
    return at, _line(content, at)


def _line(content: Content, at: int) -> int | None:
    return len(content.head) + at + 1 if content.form.kind in ("lines", "objects") else None


def _is_series(content: Content) -> bool:
    """Whether each record is at the place of its time."""
    return content.form.of == "changes" and content.form.kind == "document"


def whole(_: Random, content: Content) -> Damage:
    """Nothing."""
    return Damage(content.data(), outcome="same")


def deleted(rng: Random, content: Content) -> Damage | None:
    """A record is missing."""
    at, _ = _one(rng, content)
    if _is_series(content):
        return None
    kept = [*content.records[:at], *content.records[at + 1 :]]
    is_whole = not content.form.is_event and content.form.of in ("jobs", "downtimes") and not content.form.owner
    return Damage(replace(content, records=kept).data(), at, "without" if is_whole else "accounted", -1)


def duplicated(rng: Random, content: Content) -> Damage | None:
    """A record is there twice."""
    at, line = _one(rng, content)
    if _is_series(content):
        return None
    more = [*content.records[: at + 1], content.records[at], *content.records[at + 1 :]]
    outcome: Outcome = "accounted" if "duplicated" in content.form.refuses else "same"
    return Damage(replace(content, records=more).data(), at, outcome, 1, line and line + 1)


def reordered(rng: Random, content: Content) -> Damage | None:
    """Records stand in another order."""
    if _is_series(content):
        return None
    records = rng.sample(content.records, len(content.records))
    outcome: Outcome = "accounted" if "reordered" in content.form.refuses else "same"
    return Damage(replace(content, records=records).data(), None, outcome)


def cut_off(rng: Random, content: Content) -> Damage | None:
    """The file breaks off within its last record."""
    data, at = content.data(), len(content.records) - 1
    if _is_series(content):
        return None
    last = (
        len(data) if content.form.kind in ("document", "parquet") else len(data.rstrip(b"\n").rpartition(b"\n")[2]) + 1
    )
    return Damage(data[: len(data) - rng.randrange(1, last)], at, line=_line(content, at))


def _of_lines(change: Callable[[Random, list[str]], tuple[list[str], int]], outcome: Outcome = "same") -> Mutation:
    def mutation(rng: Random, content: Content) -> Damage | None:
        if content.form.kind == "parquet":
            return None
        lines = content.data().decode().splitlines()
        changed, records = change(rng, lines)
        return Damage("".join(changed).encode(), None, outcome, records)

    return mutation


def _ended(_: Random, lines: list[str], end: str = "\r\n") -> tuple[list[str], int]:
    return [line + end for line in lines], 0


def _blank(rng: Random, lines: list[str]) -> tuple[list[str], int]:
    some = [line + "\n" for line in lines]
    for _ in range(3):
        some.insert(rng.randrange(len(some) + 1), "\n")
    return some, 0


crlf = _of_lines(_ended)
crlf.__doc__ = "Lines end as in Windows."
byte_order_mark = _of_lines(lambda rng, lines: _ended(rng, ["\ufeff" + lines[0], *lines[1:]], "\n"))
byte_order_mark.__doc__ = "The file begins with a mark of its byte order."
blank_lines = _of_lines(_blank)
blank_lines.__doc__ = "Lines without anything stand in between."


def _inserted(text: str, content: Content, rng: Random, outcome: Outcome, records: int) -> Damage | None:
    """A line between the records."""
    if content.form.kind not in ("lines", "objects"):
        return None
    lines = content.data().decode().splitlines()
    at = rng.randrange(len(content.head) + 1, len(lines) + 1)
    lines.insert(at, text)
    return Damage("".join(f"{line}\n" for line in lines).encode(), None, outcome, records, at + 1)


def comments(rng: Random, content: Content) -> Damage | None:
    """A comment stands in between, in a form that has some or none."""
    known = content.form.comment
    return _inserted(f"{known or '#'} a comment", content, rng, "same" if known else "accounted", 0 if known else 1)


def blanks(rng: Random, content: Content) -> Damage | None:
    """A line of blanks stands in between."""
    return _inserted("   ", content, rng, "accounted", 0)


def unknown_field(_: Random, content: Content) -> Damage | None:
    """There is a field, or a column, of which nobody knows."""
    return _with_field(content, "zzz")


def _with_field(content: Content, text: str, at: int | None = None) -> Damage | None:
    extra = content.form.extra
    if content.form.kind in ("document", "objects"):
        if _is_series(content):
            return None
        return Damage(replace(content, records=[each | {"zzz": text} for each in content.records]).data(), at, "same")
    if content.form.kind == "parquet":
        schema = content.schema.append(pa.field("zzz", pa.string()))  # type: ignore[union-attr]
        records = [each | {"zzz": text} for each in content.records]
        return Damage(replace(content, records=records, schema=schema).data(), at, "same")
    if not extra:
        return None
    if len(extra) > 1:
        return Damage(
            replace(content, records=[each + extra.replace("zzz", text) for each in content.records]).data(), at, "same"
        )
    head = [f"{line}zzz{extra}" if line.endswith(extra) else f"{line}{extra}zzz" for line in content.head]
    is_trailing = bool(content.head) and content.head[-1].endswith(extra)
    rows = [f"{line}{text}{extra}" if is_trailing else f"{line}{extra}{text}" for line in content.records]
    return Damage(replace(content, head=head, records=rows).data(), at, "same")


def other_encoding(_: Random, content: Content) -> Damage | None:
    """A field that nobody needs is in another encoding than the rest."""
    if content.form.kind == "parquet":
        return None
    done = _with_field(content, "__?__")
    return replace(done, outcome="accounted") if done and "other_encoding" in content.form.refuses else done


def other_time(rng: Random, content: Content) -> Damage | None:
    """The times of a record are written in another form that is documented."""
    at, _ = _one(rng, content)
    if content.form.retimed is None:
        return None
    pattern, write = content.form.retimed
    record = content.records[at]
    new = re.sub(pattern, write, record) if isinstance(record, str) else _retimed(record, pattern, write)
    if new == record:
        return None
    return Damage(replace(content, records=[*content.records[:at], new, *content.records[at + 1 :]]).data(), at, "same")


def _retimed(value: Any, pattern: str, write: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: write(each) if re.fullmatch(pattern, name) else _retimed(each, pattern, write)
        for name, each in value.items()
    }


def garbage(rng: Random, content: Content) -> Damage:
    """A field of a record is garbage."""
    at, line = _one(rng, content)
    return _replaced(content, at, _changed(rng, content, content.records[at]), line)


def _replaced(content: Content, at: int, new: Any, line: int | None) -> Damage:
    records = [*content.records[:at], new, *content.records[at + 1 :]]
    return Damage(replace(content, records=records).data(), at, line=line)


def _changed(rng: Random, content: Content, record: Any) -> Any:
    if isinstance(record, str):
        parts = re.split(f"({content.form.fields})", record)
        parts[2 * rng.randrange(len(parts) // 2 + 1)] = rng.choice(GARBAGE)
        return "".join(parts)
    if content.form.kind == "parquet":
        name = rng.choice(list(record))
        is_text = pa.types.is_string(content.schema.field(name).type)  # type: ignore[union-attr]
        return record | {name: rng.choice(GARBAGE) if is_text else None}
    if not isinstance(record, dict):
        return rng.choice(_ODD_VALUES)
    name = rng.choice(list(record))
    if isinstance(record[name], dict) and record[name] and rng.random() < 0.7:
        return record | {name: _changed(rng, content, record[name])}
    return record | {name: rng.choice(_ODD_VALUES)}


def missing_field(rng: Random, content: Content) -> Damage | None:
    """A record lacks a field."""
    at, line = _one(rng, content)
    record = content.records[at]
    if isinstance(record, str):
        parts = re.split(content.form.fields, record)
        separator = re.search(content.form.fields, record)
        parts.pop(rng.randrange(len(parts)))
        return _replaced(content, at, (separator[0] if separator else "").join(parts), line)
    if content.form.kind == "parquet" or not isinstance(record, dict):
        return None
    name = rng.choice(list(record))
    return _replaced(content, at, {key: each for key, each in record.items() if key != name}, line)


def nul(rng: Random, content: Content) -> Damage | None:
    """A record holds a byte that no text does."""
    if content.form.kind == "parquet":
        return None
    at, line = _one(rng, content)
    data = content.data()
    if line is None:
        place = rng.randrange(len(data))
        return Damage(data[:place] + b"\0" + data[place:], at, line=data[:place].count(b"\n") + 1)
    lines = data.splitlines(keepends=True)
    place = rng.randrange(len(lines[line - 1]))
    lines[line - 1] = lines[line - 1][:place] + b"\0" + lines[line - 1][place:]
    return Damage(b"".join(lines), at, line=line)


def scrambled(rng: Random, content: Content) -> Damage | None:
    """A whole line is something else."""
    at, line = _one(rng, content)
    if line is None:
        return None
    lines = content.data().decode().splitlines()
    noise = hostile(rng).encode("ascii", "backslashreplace").decode()
    lines[line - 1] = "?" + re.sub(r"[\x00-\x1f]", " ", noise)
    return Damage("".join(f"{each}\n" for each in lines).encode(), at, line=line)


MUTATIONS: dict[str, Mutation] = {
    each: globals()[each]
    for each in (
        *("whole", "deleted", "duplicated", "reordered", "cut_off", "crlf", "byte_order_mark", "blank_lines"),
        *("comments", "blanks", "unknown_field", "other_encoding", "other_time", "garbage", "missing_field", "nul"),
        "scrambled",
    )
}
