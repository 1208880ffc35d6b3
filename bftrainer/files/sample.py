"""Where the embedded sample lies, in an installed wheel as well as in an editable checkout."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import InputError

__all__ = ["SAMPLE_NODE_LOG", "SAMPLE_SPOT_PROFILE", "SAMPLE_TASKS", "SAMPLE_TUNED_TASKS", "sample_path"]

SAMPLE_NODE_LOG = "sample-idle.parquet"
SAMPLE_TASKS = "sample-tasks.toml"
SAMPLE_TUNED_TASKS = "sample-tuned-tasks.toml"
SAMPLE_SPOT_PROFILE = "sample-spot-profile.toml"


def sample_path(name: str) -> Path:
    """Path of the embedded data file `name`.

    A wheel carries `datasets/` as `bftrainer/data/`. An editable install leaves it where it is: setuptools'
    editable finder cannot import a package without `__init__.py` below another one, so
    `importlib.resources.files("bftrainer.data")` does not answer there.

    Raises
    ------
    InputError
        If the installation lacks the file.
    """
    package = Path(__file__).parents[1]
    installed = package / "data"
    path = (installed if installed.is_dir() else package.parent / "datasets") / name
    if not path.is_file():
        raise InputError(f"Expected the embedded data file {name} at {path}, found none; is bftrainer fully installed?")
    return path
