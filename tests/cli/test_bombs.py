"""Small files that unpack to anything, and files without an end: refused in one line, in little memory and time."""

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bftrainer.errors import InputError
from bftrainer.files.opening import SETTING, open_plain

MOST_MIB, MOST_CPU_S = 300, 4.0  # two seconds on a quiet machine
PIECE = (b";" + 1022 * b"a" + b"\n") * 1024  # 1 MiB, of which packers make a kilobyte
LONG = 100


def gzipped(path: Path, piece: bytes = PIECE, times: int = LONG) -> None:
    """Pieces that are all the same, packed."""
    with gzip.open(path, "wb") as stream:
        for _ in range(times):
            stream.write(piece)


def tarred(path: Path) -> None:
    """A tar, gzipped, whose pickle is one large byte string."""
    content, text = io.BytesIO(), pickle.dumps(bytes(LONG << 20))
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo("evt.pkl")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    gzipped(path, content.getvalue(), 1)


def repeated(path: Path) -> None:
    """A table of Parquet whose rows are all the same."""
    kind = pa.schema([("time", pa.timestamp("ns", tz="UTC")), ("node", pa.int32()), ("idle", pa.bool_())])
    rows = pa.table({name: pa.array([0] * 2_000_000).cast(pa.int64()) for name in kind.names})
    with pq.ParquetWriter(path, rows.schema) as writer:
        for _ in range(50):
            writer.write_table(rows)


def sparse(path: Path) -> None:
    """A terabyte that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


SWF = ("import", "--format", "swf", "{}", "--nodes", "4", "-o", "out.parquet")
ENDLESS = pickle.PROTO + b"\x04" + (pickle.NONE + pickle.POP) * 2_000_000 + pickle.NONE + pickle.STOP
"""A pickle that makes and drops numbers."""
SMALL = {SETTING: "0.0625"}
"""A limit of 64 MiB for logs, too."""
BOMBS: dict[str, tuple[str, Callable[[Path], object], tuple[str, ...], dict[str, str]]] = {
    "gzip": ("log.swf.gz", gzipped, SWF, SMALL),
    "tar": ("evt.tar.gz", tarred, ("replay", "-ndmap", "{}"), SMALL),
    "parquet": ("idle.parquet", repeated, ("replay", "-ndmap", "{}"), SMALL),
    "pickle": ("evt.pkl", lambda path: path.write_bytes(ENDLESS), ("replay", "-ndmap", "{}"), {}),
    "sparse": ("sweep.toml", sparse, ("sweep", "{}", "-o", "out"), {}),
    "line": ("log.swf", lambda path: path.write_bytes(b"a" * (80 << 20)), SWF, {}),
}
DRIVER = """
import json, os, sys
sys.argv = ["bftrainer", *json.loads(sys.argv[1])]
from bftrainer.cli.group import cli, guarded
status = guarded(cli, "bftrainer")
most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([status, int(most.split()[1]) / 1024, sum(os.times()[:2])]))
"""


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb, tmp_path):
    """One line that names the file, status 2, less than 300 MiB, and nothing left behind."""
    name, make, words, limits = BOMBS[bomb]
    path = Path(tmp_path, name)
    make(path)
    before = sorted(tmp_path.rglob("*"))
    words = [word.format(path) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(words)],
        cwd=tmp_path,
        env=os.environ | limits,
        capture_output=True,
        text=True,
        check=False,
    )
    status, used_mib, cpu_s = json.loads(done.stdout)
    print(f"{used_mib:.0f} MiB, {cpu_s:.1f} s")
    (said,) = done.stderr.splitlines()[-1:]
    assert (status, said.startswith("Error: "), str(path) in said) == (2, True, True), said
    assert SETTING in said
    assert used_mib < MOST_MIB
    assert cpu_s < MOST_CPU_S
    assert sorted(tmp_path.rglob("*")) == before


def test_the_limit_counts_what_is_unpacked(tmp_path, monkeypatch):
    """A file may pack as well as it likes; at a higher limit a larger one is read, also by processes of workers."""
    path = tmp_path / "log.gz"
    gzipped(path)
    monkeypatch.setenv(SETTING, "0.09")
    said = r"log.gz: Expected at most 92 MiB unpacked, got more; BFTRAINER_MAX_GIB raises the limit"
    with pytest.raises(InputError, match=said), open_plain(path):
        pytest.fail("the stream was handed out")
    monkeypatch.setenv(SETTING, "0.11")
    with open_plain(path) as stream:
        assert len(stream.read()) == LONG * len(PIECE)
