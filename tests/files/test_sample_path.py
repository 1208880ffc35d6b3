"""The embedded files are found wherever bftrainer is installed."""

from __future__ import annotations

from bftrainer.files import opening


def test_finds_files_in_a_checkout():
    """In an editable install the data lie in `datasets/` beside the package."""
    assert opening.sample_path("README.md").parent.name == "datasets"


def test_finds_files_in_an_installed_wheel(tmp_path, monkeypatch):
    """A wheel carries them in `bftrainer/data/`, which then comes first."""
    (tmp_path / "bftrainer" / "data").mkdir(parents=True)
    (tmp_path / "bftrainer" / "data" / "README.md").touch()
    monkeypatch.setattr(opening, "__file__", str(tmp_path / "bftrainer" / "files" / "opening.py"))
    assert opening.sample_path("README.md") == tmp_path / "bftrainer" / "data" / "README.md"
