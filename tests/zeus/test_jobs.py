"""Jobs from TOML: what is taken, and what is refused in one line."""

from __future__ import annotations

import re

import pytest

from bftrainer.errors import TuningInputError
from bftrainer.zeus.simulation.inputs import read_jobs
from tests.recurring import JOBS, PAGES, WORDS


def test_jobs_in_their_order(tmp_path):
    """Each table is a job with the fields of `Job`; what is left out has its default."""
    (tmp_path / "jobs.toml").write_text(JOBS)
    assert read_jobs(tmp_path / "jobs.toml") == [PAGES, WORDS]


BAD = {
    "no TOML": (("schema = 1", "schema = = 1"), "Expected TOML, got something else"),
    "schema": (("schema = 1", "schema = 7"), "Expected schema = 1, got 7"),
    "unknown table": (("schema = 1", "schema = 1\njobs = 2"), "Unknown key 'jobs'. Did you mean 'job'?"),
    "unknown key": (("default_bs", "default_batch"), "Unknown key 'default_batch'. Did you mean 'default_bs'?"),
    "missing key": (("max_epochs = 20\n", ""), "job 1: Missing key 'max_epochs'."),
    "missing name": (('dataset = "pages"\n', ""), "job 1: Missing key 'dataset'."),
    "text for a number": (("0.5", '"half"'), "target_metric: Input should be a valid number, got 'half'."),
    "fraction": (("= 20", "= 20.5"), "max_epochs: Input should be a valid integer, got 20.5."),
    "NaN": (("0.5", "nan"), "target_metric: Input should be a finite number, got nan."),
    "empty name": (('"pages"', '""'), "job 1: dataset: String should have at least 1 character, got ''."),
    "no epochs": (("= 20", "= 0"), "Expected max_epochs above 0, got 0."),
    "negative batch size": (("default_bs = 8", "default_bs = -8"), "Expected default_bs above 0, got -8."),
    "no job": ((JOBS[JOBS.index("[[job]]") :], ""), "Expected at least one [[job]], found none."),
    "twice": (("schema = 1", "schema = 1\n" + JOBS[JOBS.index("[[job]]") :]), "job 3: Expected each job once, found"),
}


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD.keys())
def test_refused(tmp_path, change, said):
    """A fault is told in one line with file, job and key, and the closest key that there is."""
    (tmp_path / "bad.toml").write_text(JOBS.replace(*change, 1))
    with pytest.raises(TuningInputError, match=re.escape(said)) as caught:
        read_jobs(tmp_path / "bad.toml")
    assert str(caught.value).startswith(f"{tmp_path / 'bad.toml'}")
    assert "\n" not in str(caught.value)


def test_unreadable(tmp_path):
    """A file that is not there, a directory and noise are refused by their names."""
    (tmp_path / "noise.toml").write_bytes(b"\xff\xfe\x00")
    for name, said in (("absent.toml", "No such file"), ("", "a directory"), ("noise.toml", "Expected TOML")):
        with pytest.raises(TuningInputError, match=said):
            read_jobs(tmp_path / name)
