"""All importers alike: one history in every format gives one node log or count, and damage is never silent."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from bftrainer.errors import InputError
from bftrainer.files.text_files import head
from bftrainer.nodelogs.node_spans import idle_spans
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import LOG_FORMATS, ImportSettings
from bftrainer.schedulers.reading import recognise
from tests.examples import examples
from tests.schedulers.conformance.histories import COUNTED, DAY, END, NAMED, NODES, PLAIN, START, histories

WINDOW = {"start": "2026-09-01T00:01:40Z", "end": "2026-09-01T00:06:40Z", "window": "asked"}
ALL = {**COUNTED, **NAMED}
few = settings(examples(15), suppress_health_check=[HealthCheck.too_slow])


def dense(log):
    """Which seconds of the window each node is idle."""
    cells = np.zeros((len(log.nodes), END - START), dtype=bool)
    spans = idle_spans(log)
    for node, start, end in zip(spans.node, spans.start_ns // 10**9, spans.end_ns // 10**9, strict=True):
        cells[node, start - DAY - START : end - DAY - START] = True
    return cells


def importer_of(name):
    """The importer of a format; what follows in brackets is the form."""
    return name.partition(" (")[0]


def imported(name, written, **changes):
    """Import what was written, seen through the window."""
    return import_log(importer_of(name), written.paths, ImportSettings(**(WINDOW | written.settings | changes)))


def test_every_importer_is_here():
    """A format without a writer would be one without a test."""
    assert sorted(set(map(importer_of, ALL))) == sorted(LOG_FORMATS)


@pytest.mark.parametrize("name", NAMED)
@few
@given(history=histories())
def test_formats_with_names(tmp_path_factory, name, history):
    """The same history gives the same node log, second by second and node by node."""
    idle = history.idle()
    # A trace of what was there knows nothing of what never was.
    named = idle.any(axis=1) if name == "spot" else np.ones(len(NODES), dtype=bool)
    assume(named.any())
    done = imported(name, NAMED[name](tmp_path_factory.mktemp(name), history))
    assert done.log.nodes == tuple(np.array(NODES)[named])
    np.testing.assert_array_equal(dense(done.log), idle[named])
    assert (done.log.start_ns, done.log.end_ns) == ((DAY + START) * 10**9, (DAY + END) * 10**9)


@pytest.mark.parametrize("name", COUNTED)
@few
@given(history=histories(shared=False))
def test_formats_with_counts(tmp_path_factory, name, history):
    """The same history gives the same number of idle nodes at every second, and the log says that it made up names."""
    assume(history.idle().any())
    done = imported(name, COUNTED[name](tmp_path_factory.mktemp(name), history))
    assert len(done.log.nodes) == len(NODES)
    np.testing.assert_array_equal(dense(done.log).sum(axis=0), history.idle().sum(axis=0))
    assert "placement" in done.log.provenance


@pytest.mark.parametrize("name", ALL)
def test_plain_history(tmp_path, name):
    """The account adds up and is plain data; the log is recognised, and is the same if it is packed."""
    written = ALL[name](tmp_path, PLAIN)
    done = imported(name, written)
    quality = done.quality
    assert quality.format == importer_of(name)
    assert quality.records == quality.kept + sum(quality.dropped.values())
    assert (quality.bad, quality.idle_node_s, quality.idle_share) == (0, PLAIN.idle().sum(), PLAIN.idle().mean())
    assert json.loads(json.dumps(vars(quality)))["nodes"] == len(NODES)
    for path in written.paths:
        if quality.format != "table":  # columns of a table are for the user to tell
            assert recognise(head(path), str(path)).name == quality.format
        if path.suffix != ".parquet":
            path.write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(dense(imported(name, written).log), dense(done.log))


@pytest.mark.parametrize("name", [name for name in ALL if importer_of(name) not in ("counts", "flux", "spot", "watch")])
def test_copies_make_no_difference(tmp_path, name):
    """A log that overlaps another one, as exports of two months do, gives the same node log and overlap."""
    written = ALL[name](tmp_path, PLAIN)
    once = imported(name, written)
    copies = tuple(shutil.copy(path, path.with_name(f"copy of {path.name}")) for path in written.paths)
    twice = imported(name, replace(written, paths=(*written.paths, *copies)))
    np.testing.assert_array_equal(dense(once.log), dense(twice.log))
    assert twice.quality.overlap_factor == once.quality.overlap_factor
    assert twice.quality.duplicates == len(PLAIN.jobs)


@pytest.mark.parametrize("name", ALL)
def test_logs_of_other_formats(tmp_path, name):
    """A log is refused in one line by all other importers, never read as something it is not."""
    written = ALL[name](tmp_path, PLAIN)
    for other in set(map(importer_of, ALL)) - {importer_of(name)}:
        with pytest.raises(InputError) as caught:
            imported(other, written)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "got an empty file"),
        (bytes(range(256)) * 8, "got (binary data|something else|a damaged one|1 values)"),
        (gzip.compress(b"x\n" * 9999, mtime=0)[:-8], "got a damaged one"),
        ("é".encode("latin-1") * 999 + b"\n", "Expected"),
    ],
    ids=["empty", "binary", "short gzip", "other encoding"],
)
def test_noise(tmp_path, name, data, message):
    """Noise is refused in one line that names the file."""
    written = ALL[name](tmp_path, PLAIN)
    written.paths[0].write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        imported(name, written)
    assert str(written.paths[0]) in str(caught.value)
    assert "\n" not in str(caught.value)


TEXTS = sorted(set(ALL) - {"table (Parquet)"})
IN_ORDER = {"counts", "counts (JSON)", "flux", "spot", "watch", "slurm (sacct --json)", "slurm (squeue --json)"}
"""Forms in which a line that stands there twice means something else."""
GARBAGE = ["", "?", "garbage", "é", "-", "n[1-", "nan", "inf", "None", "0x10", "1e999", '"', "a b", "'", "9" * 30, "{"]
"""In the place of a field: nothing that could be another number or node of the machine."""
HARMLESS = ("crlf", "byte order mark", "blank lines", "a line twice")
SEEDS = 12


def busy_of(done) -> np.ndarray:
    """Busy nodes by second: which they are, or how many where the log counts them."""
    if "placement" in done.log.provenance:
        return (~dense(done.log)).sum(axis=0) + len(NODES) - len(done.log.nodes)
    busy = np.ones_like(PLAIN.idle())
    for row, name in zip(dense(done.log), done.log.nodes, strict=True):
        if name in NODES:
            busy[NODES.index(name)] = ~row
    return busy.astype(int)


def account_of(quality) -> tuple:
    """What an import says of records that are not used as they stand; sentences on coverage aside."""
    notes = [note for note in quality.notes if "trusted" not in note]
    figures = quality.bad, quality.unknown, quality.nodes_outside, quality.nodes_unseen, quality.outside_window
    return (*figures, dict(quality.dropped), notes)


def garble(rng: Random, line: str) -> str:
    """The line with garbage in the place of a field."""
    parts = re.split(r"([|;,\t ]+|(?<=[\"\d])[:=])", line)
    parts[2 * rng.randrange(len(parts) // 2 + 1)] = rng.choice(GARBAGE)
    return "".join(parts)


def shorten(rng: Random, line: str) -> str:
    """The line without its end."""
    return line[: rng.randrange(len(line))]


def scramble(rng: Random, _: str) -> str:
    """Something else."""
    return "?" + "".join(rng.choice("abc|;,: {}[]\"'=é\\") for _ in range(40))


def poison(rng: Random, line: str) -> str:
    """The line with a byte that no text holds."""
    at = rng.randrange(len(line) + 1)
    return f"{line[:at]}\0{line[at:]}"


@pytest.mark.parametrize(
    ("name", "write"),
    [(name, write) for name in TEXTS for write in HARMLESS if write != "a line twice" or name not in IN_ORDER],
)
def test_harmless_damage_changes_nothing(tmp_path, name, write):
    """Line ends of Windows, a mark of the byte order, blank lines, and a line that was copied."""
    written = ALL[name](tmp_path, PLAIN)
    truth = busy_of(imported(name, written))
    lines = written.paths[0].read_text().splitlines()
    at = max(1, len(lines) // 2)
    if write == "blank lines":
        lines[at:at] = ["", ""]
    elif write == "a line twice":
        lines.insert(at, lines[at])
    text = "".join(line + ("\r\n" if write == "crlf" else "\n") for line in lines)
    written.paths[0].write_bytes(text.encode("utf-8-sig" if write == "byte order mark" else "utf-8"))
    done = imported(name, written, max_bad=1.0)
    assert done.quality.bad == 0
    np.testing.assert_array_equal(busy_of(done), truth)


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("damage", [garble, shorten, scramble, poison])
def test_damage_of_one_line(tmp_path, name, damage):
    """Time of one job at most gets lost; what changed is counted or said, or the log is refused in one line."""
    written = ALL[name](tmp_path, PLAIN)
    path, whole = written.paths[0], imported(name, written)
    clean, truth, messages = path.read_text(), busy_of(whole), []
    for seed in range(SEEDS):
        rng, lines = Random(f"{name} {seed}"), clean.splitlines()
        at = rng.choice([at for at, line in enumerate(lines) if line[0] != ";"])  # no header of SWF
        lines[at] = damage(rng, lines[at])
        path.write_text("".join(f"{line}\n" for line in lines))
        try:
            done = imported(name, written, max_bad=1.0)
        except InputError as fault:
            messages.append(str(fault))
            continue
        quality, busy, shown = done.quality, busy_of(done), lines[at]
        assert quality.records == quality.kept + sum(quality.dropped.values())
        if (busy != truth).any():
            assert account_of(quality) != account_of(whole.quality), shown
        if name not in IN_ORDER:
            assert any((busy >= others).all() for others in histories_without_one(whole)), shown
    assert not any("\n" in message for message in messages)


def histories_without_one(whole) -> list[np.ndarray]:
    """Busy nodes by second if one of the jobs were missing."""
    rest = [replace(PLAIN, jobs=tuple(job for job in PLAIN.jobs if job is not lost)) for lost in PLAIN.jobs]
    cells = [(~history.idle()).astype(int) for history in rest]
    return [some.sum(axis=0) if "placement" in whole.log.provenance else some for some in cells]
