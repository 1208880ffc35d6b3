"""Files of any form are opened, and what cannot be read is refused in one line with the file's name."""

from __future__ import annotations

import bz2
import zipfile
from pathlib import Path

import pytest

from bftrainer.errors import InputError
from bftrainer.files import opening
from bftrainer.files.opening import Form, form_of, open_plain, sample_path
from bftrainer.files.text_files import MOST_NESTED, json_file, toml_file


def read_toml(path, error):
    """Content of a TOML file."""
    return toml_file(path, error)[0]["x"]


READERS = {"json": json_file, "toml": read_toml, "form": form_of}


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
