"""TOML and JSON that nothing can be made of is refused by every reader in one line with the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import BftrainerError, InputError
from bftrainer.files.documents import MOST_NESTED, json_file, toml_file
from bftrainer.nodelogs import read_node_log
from bftrainer.runs.run_files import read_summary
from bftrainer.tasksets import read_task_set
from bftrainer.tasksets.measurements import read_training_profile
from bftrainer.zeus.master.script import read_job_file, read_report
from bftrainer.zeus.simulation.files import read_history
from bftrainer.zeus.simulation.inputs import read_jobs


def beside(path: Path) -> None:
    """Metadata of a node log."""
    table = path.with_name("idle.csv")
    table.write_text("time,node,idle\n")
    path.rename(table.with_suffix(".json"))
    read_node_log(table)


def summary(path: Path) -> None:
    """Of a result directory."""
    path.rename(path.with_name("summary.json"))
    read_summary(path.parent)


TOML = [read_task_set, read_sweep, lambda path: read_job_file(path, {}), read_jobs, read_training_profile]
JSON = [beside, summary, read_history, read_report]
CONTENTS = {
    "deep": lambda form: b"x = " * (form == "toml") + b"[" * 3000,
    "deep and closed": lambda form: b"x = " * (form == "toml") + b"[" * 3000 + b"]" * 3000,
    "a little too deep": lambda form: b"x = " * (form == "toml") + b"[" * 200 + b"]" * 200,
    "no text": lambda _: b'"\xff\xfe',
    "too many digits": lambda form: b"x = " * (form == "toml") + b"9" * 5000,
    "a lone bracket": lambda _: b"[\x1b",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
@pytest.mark.parametrize(
    ("form", "reader"), [*(("toml", reader) for reader in TOML), *(("json", reader) for reader in JSON)]
)
def test_documents_that_are_none(tmp_path, form, reader, content):
    """Nested thousands of levels deep, no text, or numbers beyond what Python reads."""
    path = tmp_path / f"file.{form}"
    path.write_bytes(content(form))
    with pytest.raises(BftrainerError) as caught:
        reader(path)
    assert str(tmp_path) in str(caught.value)
    assert "Expected" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("reader", TOML)
def test_texts_that_name_nothing(tmp_path, reader):
    """The character NUL, of which no path and no argument can have any, is refused wherever it is in a file."""
    path = tmp_path / "file.toml"
    path.write_text('schema = 1\n[[task]]\nzeus = {train_trace = "a\\u0000b"}\n')
    with pytest.raises(InputError, match=r"file\.toml:3: Expected text without the character NUL"):
        reader(path)


@pytest.mark.parametrize(("read", "form"), [(json_file, "json"), (lambda *given: toml_file(*given)[0]["x"], "toml")])
def test_how_deep_is_too_deep(tmp_path, read, form):
    """The bound itself is let through."""
    room = MOST_NESTED - (form == "toml")
    path = tmp_path / "file"
    for levels, fits in ((room, True), (room + 1, False)):
        path.write_text("x = " * (form == "toml") + "[" * levels + "]" * levels)
        if fits:
            assert isinstance(read(path, InputError), list)
            continue
        with pytest.raises(InputError, match=f"at most {MOST_NESTED} levels, got more"):
            read(path, InputError)
