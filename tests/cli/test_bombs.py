"""Small files that unpack to anything, and files without an end: refused in one line, in little memory; `--limits`."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import LimitError, SettingsError
from bftrainer.files.budgets import SETTING, Budget, budget, factor_of
from bftrainer.files.opening import open_plain

MOST_MIB = 300
PIECE = (b";" + 1022 * b"a" + b"\n") * 1024  # 1 MiB, of which packers make a kilobyte
LONG = 100


def packed(opener: Callable[[Path, str], Any], path: Path, piece: bytes = PIECE, times: int = LONG) -> None:
    """Pieces that are all the same, packed."""
    with opener(path, "wb") as stream:
        for _ in range(times):
            stream.write(piece)


def zipped(path: Path) -> None:
    """A zip archive of one file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.swf", PIECE * LONG)


def tarred(path: Path) -> None:
    """A tar, gzipped, whose pickle is one large byte string."""
    content, text = io.BytesIO(), pickle.dumps(bytes(LONG << 20))
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("evt.pkl")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    packed(gzip.GzipFile, path, content.getvalue(), 1)


def repeated(path: Path) -> None:
    """A table of Parquet whose rows are all the same."""
    kind = pa.schema([("time", pa.timestamp("ns", tz="UTC")), ("node", pa.int32()), ("idle", pa.bool_())])
    rows = pa.table({name: pa.array([0] * 2_000_000).cast(pa.int64()) for name in kind.names})
    with pq.ParquetWriter(path, rows.schema) as writer:
        for _ in range(50):
            writer.write_table(rows)


def endless_pickle(path: Path) -> None:
    """A pickle that makes and drops numbers, some millions of times."""
    path.write_bytes(pickle.PROTO + b"\x04" + (pickle.NONE + pickle.POP) * 2_000_000 + pickle.NONE + pickle.STOP)


def sparse(path: Path) -> None:
    """A terabyte that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


def one_line(path: Path) -> None:
    """A line of 80 MiB."""
    path.write_bytes(b"a" * (80 << 20))


SWF = ("import", "swf", "{}", "--nodes", "4", "-o", "out.parquet")
COMMENT, ROWS = b"#" * (1 << 20), b"2021-02-10T00:00:00,n1,1\n" * 40_000
BOMBS: dict[str, tuple[str, Callable[[Path], object], tuple[str, ...]]] = {
    "gzip": ("log.swf.gz", partial(packed, gzip.GzipFile), SWF),
    "bzip2": ("log.swf.bz2", partial(packed, partial(bz2.BZ2File, compresslevel=1)), SWF),
    "xz": ("log.swf.xz", partial(packed, partial(lzma.LZMAFile, preset=0)), SWF),
    "zip": ("log.swf", zipped, SWF),
    "tar": ("evt.tar.gz", tarred, ("replay", "-ndmap", "{}")),
    "toml": ("tasks.toml.gz", partial(packed, gzip.GzipFile, piece=COMMENT), ("replay", "-bdfn", "{}")),
    "csv": ("idle.csv.gz", partial(packed, gzip.GzipFile, piece=ROWS), ("replay", "-ndmap", "{}")),
    "parquet": ("idle.parquet", repeated, ("replay", "-ndmap", "{}")),
    "pickle": ("evt.pkl", endless_pickle, ("replay", "-ndmap", "{}")),
    "sparse": ("sweep.toml", sparse, ("sweep", "{}", "-o", "out")),
    "line": ("log.swf", one_line, SWF),
    "line of a table": ("train.csv", one_line, ("zeus", "traces", "--train", "{}", "--power", "{}")),
    "device": ("/dev/zero", Path.exists, ("sweep", "{}", "-o", "out")),
}
DRIVER = """
import json, os, sys
sys.argv = ["bftrainer", *json.loads(sys.argv[1])]
from bftrainer.cli._shared.group import cli, guarded
status = guarded(cli, "bftrainer")
most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([status, int(most.split()[1]) / 1024, sum(os.times()[:2])]))
"""


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb, tmp_path):
    """One line that names the file, status 2, less than 300 MiB, and nothing left behind."""
    name, make, words = BOMBS[bomb]
    path = Path(tmp_path, name)
    make(path)
    before = sorted(tmp_path.rglob("*"))
    words = [word.format(path) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(words)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    status, used_mib, cpu_s = json.loads(done.stdout)
    print(f"{used_mib:.0f} MiB, {cpu_s:.1f} s")
    (said,) = done.stderr.splitlines()[-1:]
    assert (status, said.startswith("Error: "), str(path) in said) == (2, True, True), said
    assert "--limits" in said or bomb == "device"
    assert used_mib < MOST_MIB
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.long
def test_what_packs_well_is_read(tmp_path):
    """A file of less than 64 MiB may pack as well as it likes, and a larger one up to 200 times."""
    small, large = tmp_path / "small.gz", tmp_path / "large.gz"
    packed(gzip.GzipFile, small, times=60)
    packed(gzip.GzipFile, large, os.urandom(20_000) + PIECE)
    for path in (small, large):
        with open_plain(path) as stream:
            assert sum(map(len, iter(partial(stream.read, 1 << 20), b""))) >= 60 * len(PIECE)


@pytest.mark.long
def test_limits_are_raised(tmp_path, monkeypatch):
    """What is refused is read at ten times the limits, by this process and those that it starts."""
    path = tmp_path / "log.gz"
    packed(gzip.GzipFile, path)
    said = r"log.gz: .* 200 times .*; --limits raises the limit"
    with open_plain(path) as stream, pytest.raises(LimitError, match=said):
        stream.read()
    monkeypatch.setenv(SETTING, "10x")
    with open_plain(path) as stream:
        assert len(stream.read()) == LONG * len(PIECE)
    assert budget() == Budget(10.0)


@pytest.mark.parametrize("text", ["", "x", "0x", "0.5x", "-1x", "infx", "1e3x", "nan", "10y"])
def test_no_factor(text):
    """Only factors that raise limits are any."""
    with pytest.raises(SettingsError, match=r"^--limits: Expected a factor of 1 or more, such as 10x, got"):
        factor_of(text)


def test_the_option_reaches_the_limits(monkeypatch, capfd):
    """`--limits` is an option of each command that reads; a bad one is refused in one line."""
    from bftrainer.cli._shared.group import cli, guarded

    monkeypatch.setenv(SETTING, "1x")
    monkeypatch.setattr(sys, "argv", ["bftrainer", "replay", "--limits", "20x", "--dry-run"])
    assert guarded(cli, "bftrainer") == 0
    assert os.environ[SETTING] == "20x"
    monkeypatch.setattr(sys, "argv", ["bftrainer", "sweep", "--limits", "little", "x.toml"])
    capfd.readouterr()
    assert guarded(cli, "bftrainer") == 2
    assert capfd.readouterr().err == "Error: --limits: Expected a factor of 1 or more, such as 10x, got 'little'.\n"


def commands(group):
    """All commands below a group, with those of its groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield from commands(command) if isinstance(command, click.Group) else [command]


def test_all_commands_take_the_option():
    """Once each, whatever makes them: `import`, which reads the largest files, makes its own."""
    from bftrainer.cli._shared.group import cli

    counted = {each.name: sum("--limits" in param.opts for param in each.params) for each in commands(cli)}
    assert {name for name, count in counted.items() if count != 1} == set()


def test_what_is_usual_stays_ten_times_below():
    """The Summit log, and a year of a machine of 9,400 nodes."""
    usual = Budget()
    assert usual.opcodes > 10 * 14_627
    assert usual.rows > 10 * 40_000_000
    assert usual.packing > 74
