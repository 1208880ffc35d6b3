"""Log files in blocks of lines, packed or not, whole or damaged."""

from __future__ import annotations

import gzip
import zipfile

import pytest

from bftrainer.errors import InputError, LogError
from bftrainer.files import text_files
from bftrainer.files.text_files import head, line_blocks, log_paths, whole_text

TEXT = "first\nsecond line\r\n\nfourth é\n"
LINES = ["first", "second line", "", "fourth é"]


def packed(path, data):
    """Write data as the name says."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("log.txt", data)
    else:
        path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["log", "log.gz", "log.zip"])
@pytest.mark.parametrize("chunk", [3, 7, 1 << 20])
def test_lines(tmp_path, monkeypatch, name, chunk):
    """Lines and their numbers are the same however a file is packed and cut into chunks."""
    monkeypatch.setattr(text_files, "_CHUNK", chunk)
    path = packed(tmp_path / name, TEXT.encode())
    blocks = list(line_blocks(path))
    assert [line for block in blocks for line in block.lines] == LINES
    counted = 1
    for block in blocks:
        assert (block.path, block.first, block.cut_off) == (path, counted, False)
        counted += len(block.lines)
    assert head(path)[0] == "first"
    assert whole_text(path) == "\n".join(LINES)


def test_a_last_line_without_its_end(tmp_path):
    """A line that was cut off is read, and marked."""
    path = packed(tmp_path / "log", b"one\ntwo\nthr")
    assert [(block.lines, block.first, block.cut_off) for block in line_blocks(path)] == [
        (["one", "two"], 1, False),
        (["thr"], 3, True),
    ]


def test_other_encodings_do_not_stop_it(tmp_path):
    """A job's name in Latin-1 costs that name, not the log; a byte-order mark is no part of the first line."""
    path = packed(tmp_path / "log", b"\xef\xbb\xbfone\nna\xefve|n1\n")
    assert whole_text(path).split("\n")[0] == "one"
    assert whole_text(path).endswith("|n1")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("log", b"", r"log: Expected lines, got an empty file\."),
        ("log.gz", gzip.compress(b"", mtime=0), r"log.gz: Expected lines, got an empty file\."),
        ("log", b"one\ntwo\0", r"log:2: Expected text, got binary data\."),
        (
            "log.gz",
            gzip.compress(b"x\n" * 10_000, mtime=0)[:-9],
            r"log.gz: Expected a whole archive, got a damaged one",
        ),
        ("log.zip", b"PK\x03\x04 and nothing", r"log.zip: Expected a whole archive, got a damaged one"),
    ],
)
def test_damaged_files(tmp_path, name, data, message):
    """Empty and binary files and broken archives are refused in one line that names the file."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(LogError, match=message) as caught:
        list(line_blocks(tmp_path / name))
    assert "\n" not in str(caught.value)
    if "damaged" not in message:
        with pytest.raises(LogError, match=message):
            head(tmp_path / name)


@pytest.mark.parametrize(("after", "byte"), [(6, 148), (8, 1), (10, 99)], ids=["later", "password", "packed otherwise"])
def test_archives_of_other_kinds(tmp_path, after, byte):
    """Later versions, passwords and unknown ways to pack are refused in one line that names the file."""
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("a", "x\n")
    data = bytearray((tmp_path / "log.zip").read_bytes())
    data[data.index(b"PK\x01\x02") + after] = byte
    (tmp_path / "log.zip").write_bytes(data)
    with pytest.raises(LogError, match=r"log\.zip: Expected an archive of one file without a password"):
        head(tmp_path / "log.zip")


def test_endless_lines_are_refused(tmp_path, monkeypatch):
    """A file without line ends does not fill the memory."""
    monkeypatch.setattr(text_files, "most_bytes", lambda _: 100)
    packed(tmp_path / "log", b"x" * 101)
    with pytest.raises(InputError, match=r"log: Expected at most 0 MiB in a line, got more; BFTRAINER_MAX_GIB raises"):
        list(line_blocks(tmp_path / "log"))


def test_directories(tmp_path):
    """A directory stands for its files by name, hidden ones excepted."""
    for name in ("20260902", "20260901.gz", ".hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "sub").mkdir()
    assert [path.name for path in log_paths([tmp_path])] == ["20260901.gz", "20260902"]
    with pytest.raises(LogError, match=r"sub: Expected a directory with log files, got one without\."):
        log_paths([tmp_path / "sub"])
    with pytest.raises(LogError, match=r"absent: No such file\."):
        log_paths([tmp_path / "absent"])
