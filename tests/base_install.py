"""An installation without extras: a directory that holds the package and what it cannot do without, and nothing else.

Interpreters that get it as their only place for packages (``-I -S`` leaves out all others) import, find and list
distributions just as in an environment into which ``pip install .`` has put no extra.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def base_distributions(name: str = "bftrainer") -> dict[str, Distribution]:
    """The distributions that one needs without any extra, itself included, and those that they need."""
    found: dict[str, Distribution] = {}
    left = [(name, frozenset({""}))]
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        wanted = left.pop()
        if wanted in done:
            continue
        done.add(wanted)
        name, extras = wanted
        there = distribution(name)
        found[normalised(name)] = there
        for text in there.requires or ():
            required = Requirement(text)
            if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in extras):
                left.append((required.name, frozenset({"", *required.extras})))
    return found


def normalised(name: str) -> str:
    """A distribution's name as all spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def make_base_install(folder: Path) -> Path:
    """Links to the base distributions, and to the package of this checkout with its data where a wheel has them."""
    folder.mkdir()
    for name, there in base_distributions().items():
        if name != "bftrainer":
            place = Path(str(there.locate_file("")))
            parts = {Path(file).parts[0] for file in there.files or ()}
            for part in parts - {"..", "bin", "__pycache__"}:
                if (place / part).exists() and not (folder / part).exists():
                    (folder / part).symlink_to(place / part)
    metadata = Path(str(distribution("bftrainer")._path))  # type: ignore[attr-defined]
    (folder / "bftrainer.dist-info").mkdir()
    for file in metadata.iterdir():
        name = {"PKG-INFO": "METADATA"}.get(file.name, file.name)
        (folder / "bftrainer.dist-info" / name).symlink_to(file)
    (folder / "solvers").symlink_to(ROOT / "solvers")
    (folder / "bftrainer").mkdir()
    for path in (ROOT / "bftrainer").iterdir():
        (folder / "bftrainer" / path.name).symlink_to(path)
    (folder / "bftrainer" / "data").symlink_to(ROOT / "datasets")
    return folder
