"""Golden values: make them again, or compare only.

``python -m tests.golden`` writes all JSON files of this folder again and prints what changed, old -> new; ``--check``
writes nothing and ends with status 1 if anything differs. File names after it choose among the files.
"""

import os
import sys
from argparse import ArgumentParser
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden.measures import GOLDENS, measure
from tests.golden.running import find_shared_data
from tests.golden.values import differences, load, save


def compare_files(names: list[str], *, write: bool) -> int:
    """Measure what these files keep, print what differs from them and, if asked to, write them; how much differs."""
    changes = 0
    for name in names:
        if GOLDENS[name].shared and find_shared_data() is None:
            print(f"{name}: left alone, as the shared data are not here")
            continue
        kept = load(name)
        now: dict[str, Any] = {case: measure(name, case) for case in GOLDENS[name].cases}
        found = list(differences(kept, now))
        print(f"{name}: {len(now)} cases, {len(found)} changes", *found, sep="\n  ")
        changes += len(found)
        if write:
            save(name, now)
    return changes


def main() -> int:
    """Exit status: 1 if a comparison found a difference."""
    parser = ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"some of {', '.join(GOLDENS)}")
    chosen = parser.parse_args()
    if unknown := set(chosen.files) - set(GOLDENS):
        parser.error(f"no such file: {', '.join(sorted(unknown))}")
    with TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        changes = compare_files(chosen.files or list(GOLDENS), write=not chosen.check)
    return int(chosen.check and changes > 0)


if __name__ == "__main__":
    sys.exit(main())
