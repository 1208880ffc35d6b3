"""Logs that are told apart by their first lines: those of plug-ins, and those that nothing here reads."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint

import pandas as pd
import pytest

from bftrainer import plugins
from bftrainer.errors import LogError, SettingsError
from bftrainer.schedulers import IMPORTERS
from bftrainer.schedulers.import_log import import_log
from bftrainer.schedulers.import_settings import ImportSettings
from bftrainer.schedulers.reading import Importer, Reading, recognise
from tests.importing import idle_of

NS = 10**9
WINDOW = {"start": "1970-01-01T00:01:40", "end": "1970-01-01T00:03:20", "window": "asked"}  # 100 s to 200 s
SGE = ":".join(["q", "h", "g", "u", "j", "1", "a", "0", "1", "2", "3", *"x" * 30])


class Diary(Importer):
    """Reads nothing."""

    name = "diary"

    def recognises(self, lines):
        """Any that begins as diaries do, or as PBS's logs."""
        return lines[0].startswith(("Dear", "09/"))

    def read(self, paths, reading):  # noqa: ARG002
        """One node was busy."""
        reading.tally.records += 1
        reading.rows.add(120 * NS, 150 * NS, reading.rows.lists.add(["n1"]), 1)


def test_importers_of_other_packages(tmp_path, monkeypatch):
    """An importer is found by the name it is registered under, by `module:callable`, and by its logs, before others."""
    point = EntryPoint("dear", f"{__name__}:Diary", IMPORTERS.group)
    monkeypatch.setattr(plugins, "entries_of", lambda _: {"dear": (point,)})
    (tmp_path / "a").write_text("09/01/2026 08:00:00;Q;1;\n")
    for name in ("dear", f"{__name__}:Diary", "auto"):
        done = import_log(name, [tmp_path / "a"], ImportSettings(**WINDOW))
        assert done.quality.format == "diary"
        assert idle_of(done.log, 0) == {"n1": [(100, 120), (150, 200)]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["09/01/2026 08:00:00;Q;7;", "09/01/2026 08:00:00;ND;n1;"], ".*Cobalt.* plug-in"),
        (["09/01/2026 08:00:00;S;7;queue=q start=1 exec_host=1-2"], ".*Cobalt.* plug-in"),
        (["# a comment", SGE], ".*Grid .* awk"),
        (['[{"job_id": 1, "nodes": "n1"}]'], "a JSON array: .*jobs of Slurm"),
        (["job_id,finish_time,starting_time,allocated_resources"], ".*Batsim: use `import --format table"),
    ],
)
def test_formats_without_an_importer(lines, message):
    """What to do with a log of a format that is not read is said in a line; PBS's lines stay PBS's."""
    with pytest.raises(LogError, match=f"^x: {message}"):
        recognise(lines, "x")
    assert recognise(["09/01/2026 08:00:00;S;7;exec_host=a/1", "09/01/2026 08:00:00;E;7;"], "x").name == "pbs"


class Mute:
    """No importer."""


class Broken(Diary):
    """An importer that fails while it reads."""

    def read(self, paths, reading):  # noqa: ARG002
        """Fail."""
        raise ValueError("oops")


def fail():
    """Make no importer."""
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mute", "Expected a subclass of Importer, got Mute."),
        ("Broken", "importer Broken: raised ValueError: oops (test_recognition.py, line"),
        ("fail", "raised RuntimeError: not today (test_recognition.py, line"),
    ],
)
def test_a_plug_in_that_fails_is_named(tmp_path, name, message):
    """One line says which importer failed, and how."""
    (tmp_path / "log").write_text("dear diary\n")
    with pytest.raises((LogError, SettingsError), match=re.escape(message)):
        import_log(f"{__name__}:{name}", [tmp_path / "log"])


GIVEN = {"start_ns": [1.0, 2.0], "end_ns": [5.0, 6.0], "nodes": ["n1", "n2"]}


@pytest.mark.parametrize(
    ("column", "values"), [("start_ns", [1.0, float("nan")]), ("end_ns", [float("nan"), 6.0]), ("nodes", ["n1", None])]
)
def test_rows_without_times_or_nodes_are_counted(column, values):
    """What a frame does not say is no idle time: such rows are unusable, and too many of them end the import."""
    reading = Reading.begun(ImportSettings(max_bad=1.0))
    reading.take(pd.DataFrame(GIVEN | {column: values}))
    assert reading.tally.bad == 1
    assert len(reading.rows.frame()) == 1
