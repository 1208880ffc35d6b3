"""Damaged logs of all forms: whatever happens to one line, other records are kept, and nothing is lost in silence."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest

from bftrainer.errors import InputError
from tests.schedulers.conformance.histories import NODES, History
from tests.schedulers.conformance.test_conformance import ALL, PLAIN, dense, imported

TEXTS = sorted(set(ALL) - {"table (Parquet)"})
IN_ORDER = {"counts", "counts (JSON)", "flux", "spot", "watch", "slurm (sacct --json)", "slurm (squeue --json)"}
"""Forms in which a line that stands there twice means something else."""
GARBAGE = ["", "?", "garbage", "é", "-", "n[1-", "nan", "inf", "None", "0x10", "1e999", '"', "a b", "'", "9" * 30, "{"]
"""In the place of a field: nothing that could be another number or node of the machine."""
HARMLESS = ("crlf", "byte order mark", "blank lines", "a line twice")
SEEDS = 12


def busy_of(done, history: History) -> np.ndarray:
    """Busy nodes by second: which they are, or how many where the log counts them."""
    if "placement" in done.log.provenance:
        return (~dense(done.log)).sum(axis=0) + len(NODES) - len(done.log.nodes)
    busy = np.ones_like(history.idle())
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
    truth = busy_of(imported(name, written), PLAIN)
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
    np.testing.assert_array_equal(busy_of(done, PLAIN), truth)


@pytest.mark.long
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("damage", [garble, shorten, scramble, poison])
def test_damage_of_one_line(tmp_path, name, damage):
    """Time of one job at most gets lost; what changed is counted or said, or the log is refused in one line."""
    written = ALL[name](tmp_path, PLAIN)
    path, whole = written.paths[0], imported(name, written)
    clean, truth, messages = path.read_text(), busy_of(whole, PLAIN), []
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
        quality, busy, shown = done.quality, busy_of(done, PLAIN), lines[at]
        assert quality.records == quality.kept + sum(quality.dropped.values())
        if (busy != truth).any():
            assert account_of(quality) != account_of(whole.quality), shown
        if name not in IN_ORDER:
            assert any((busy >= others).all() for others in histories_without_one(whole)), shown
    assert not any("\n" in message for message in messages)


def histories_without_one(whole) -> list[np.ndarray]:
    """Busy nodes by second if one of the jobs were missing."""
    rest = [History(tuple(job for job in PLAIN.jobs if job is not lost)) for lost in PLAIN.jobs]
    cells = [(~history.idle()).astype(int) for history in rest]
    return [some.sum(axis=0) if "placement" in whole.log.provenance else some for some in cells]
