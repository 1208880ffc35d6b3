"""Files of any form are opened and read, packed or not; what is damaged is refused in one line with its name."""

from __future__ import annotations

import bz2
import gzip
import zipfile
from pathlib import Path

import pytest

from bftrainer.errors import InputError, LogError
from bftrainer.files import opening, text_files
from bftrainer.files.opening import Form, form_of, open_plain, sample_path
from bftrainer.files.text_files import MOST_NESTED, head, json_file, line_blocks, log_lines, log_paths, toml_file


def read_toml(path, error):
    """Content of a TOML file."""
    return toml_file(path, error)["x"]


READERS = {"json": json_file, "toml": read_toml, "form": form_of}
TEXT = "first\nsecond line\r\n\nfourth é\n"
LINES = ["first", "second line", "", "fourth é"]


@pytest.mark.parametrize("form", READERS)
def test_a_name_that_no_file_has(tmp_path, form):
    """It is an error of what should be there, not of the system."""
    with pytest.raises(InputError):
        READERS[form](tmp_path / ("x" * 300), InputError)


@pytest.mark.parametrize("form", ["json", "toml"])
@pytest.mark.parametrize("content", [b"[" * 3000, b"[" * 3000 + b"]" * 3000, b'"\xff\xfe', b"9" * 5000, b"[\x1b"])
def test_documents_that_are_none(tmp_path, form, content):
    """Nested thousands of levels deep, no text, or numbers beyond what Python reads."""
    path = tmp_path / f"file.{form}"
    path.write_bytes(b"x = " * (form == "toml") + content)
    with pytest.raises(InputError, match="Expected") as caught:
        READERS[form](path, InputError)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()


def test_texts_that_name_nothing(tmp_path):
    """The character NUL, of which no path and no argument can have any, is refused wherever it is in a file."""
    path = tmp_path / "file.toml"
    path.write_text('schema = 1\n[[task]]\nzeus = {train_trace = "a\\u0000b"}\n')
    with pytest.raises(InputError, match=r"file\.toml:3: Expected text without the character NUL"):
        toml_file(path, InputError)


@pytest.mark.parametrize("form", ["json", "toml"])
def test_how_deep_is_too_deep(tmp_path, form):
    """The bound itself is let through."""
    levels, path = MOST_NESTED - (form == "toml"), tmp_path / "file"
    path.write_text("x = " * (form == "toml") + "[" * levels + "]" * levels)
    assert isinstance(READERS[form](path, InputError), list)
    path.write_text("x = " * (form == "toml") + "[" * (levels + 1) + "]" * (levels + 1))
    with pytest.raises(InputError, match=f"at most {MOST_NESTED} levels, got more"):
        READERS[form](path, InputError)


def test_text_that_begins_like_bzip2(tmp_path):
    """A table that begins with the letters of bzip2 is a table; damaged bzip2 is called damaged, as others are."""
    path = tmp_path / "BZh.csv"
    path.write_text("BZh9,b\n1,2\n")
    assert form_of(path) is Form.CSV
    packed = bz2.compress(b"a,b\n1,2\n")
    path.write_bytes(packed)
    assert form_of(path) is Form.CSV
    path.write_bytes(packed[:12] + b"damaged" + packed[19:])
    with pytest.raises(InputError, match="damaged"):
        form_of(path)


@pytest.mark.parametrize("name", ["idle.csv.zip", "idle"])
def test_a_zipped_file(tmp_path, name):
    """A file that is alone in a zip archive is read as the file, whatever both are called."""
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/inside.csv", "a,b\n1,2\n")
    assert form_of(tmp_path / name) is Form.CSV
    with open_plain(tmp_path / name) as stream:
        assert stream.read() == b"a,b\n1,2\n"


def test_embedded_files(tmp_path, monkeypatch):
    """A wheel carries them in `bftrainer/data/`, a checkout in `datasets/` beside the package."""
    assert sample_path("README.md").parent.name == "datasets"
    (tmp_path / "bftrainer" / "data").mkdir(parents=True)
    monkeypatch.setattr(opening, "__file__", str(tmp_path / "bftrainer" / "files" / "opening.py"))
    assert sample_path("README.md") == Path(tmp_path / "bftrainer" / "data" / "README.md")


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
    assert [row.fields for row in log_lines(path)] == [[line] for line in LINES]


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
    first, second = log_lines(path)
    assert first.fields == ["one"]
    assert second.fields[0].endswith("|n1")


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
    monkeypatch.setattr(text_files, "DOCUMENT_BYTES", 100)
    packed(tmp_path / "log", b"x" * 101)
    with pytest.raises(InputError, match=r"log: Expected at most 0 MiB in a line, got more; BFTRAINER_MAX_GIB raises"):
        list(line_blocks(tmp_path / "log"))


def test_directories(tmp_path, monkeypatch):
    """A directory stands for its files by name, hidden ones excepted; one that cannot be read is not called empty."""
    for name in ("20260902", "20260901.gz", ".hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "sub").mkdir()
    assert [path.name for path in log_paths([tmp_path])] == ["20260901.gz", "20260902"]
    with pytest.raises(LogError, match=r"sub: Expected a directory with log files, got one without\."):
        log_paths([tmp_path / "sub"])
    with pytest.raises(LogError, match=r"absent: No such file\."):
        head(*log_paths([tmp_path / "absent"]))

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr("os.listdir", refuse)
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError):
        log_paths([tmp_path])
