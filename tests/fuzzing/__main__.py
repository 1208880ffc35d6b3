"""`scripts/fuzz`: play cases until so many, or so many minutes, are over; print a line for each finding."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.fuzzing.families import FAMILIES, WHOLE, drawn, undamaged
from tests.fuzzing.workers import findings, import_everything


def main(arguments: list[str]) -> int:
    """Play cases; 1 if there were findings."""
    parser = argparse.ArgumentParser("scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after so many")
    parser.add_argument("--cases", type=int, help="number of cases  [1000, without --minutes]")
    parser.add_argument("--seed", type=int, default=1, help="cases of another seed are others  [1]")
    parser.add_argument("--jobs", type=int, default=1, help="processes  [1]")
    parser.add_argument("--only", choices=sorted(FAMILIES), help="only this family")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="one case, with what it said")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to keep the files of findings")
    parser.add_argument("--whole", action="store_true", help="each command once, on files that are whole")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks
    import_everything()
    if asked.whole:
        asked.only, asked.cases = WHOLE, len(undamaged())
    if asked.case:
        asked.seed, number = map(int, asked.case.split(":"))
        numbers: Iterator[int] = iter([number])
    else:
        numbers = _numbers(asked.cases, asked.minutes)
    statuses: Counter[int] = Counter()
    found, begun_s, cpu_s = 0, time.monotonic(), sum(os.times()[:4])
    for finding in findings(asked.seed, numbers, asked.jobs, asked.only):
        statuses[finding.status] += 1
        if finding.wrong:
            found += 1
            _report(asked, finding.number, finding.wrong)
        if asked.case:
            print(finding.said)
    used_s = sum(os.times()[:4]) - cpu_s
    told = ", ".join(f"{number:,} of status {status}" for status, number in sorted(statuses.items()))
    print(f"seed {asked.seed}: {statuses.total():,} cases ({told}), {found} findings")
    print(f"{time.monotonic() - begun_s:.0f} s, {used_s:.0f} s of CPU")
    return 1 if found else 0


def _numbers(cases: int | None, minutes: float | None) -> Iterator[int]:
    most = cases if cases is not None else None if minutes is not None else 1000
    end_s = time.monotonic() + 60 * minutes if minutes is not None else None
    for number in itertools.count():
        if number == most or (end_s is not None and time.monotonic() > end_s):
            return
        yield number


def _report(asked: argparse.Namespace, number: int, wrong: list[str]) -> None:
    case = drawn(asked.seed, number, asked.only)
    only = f" --only {asked.only}" if asked.only else ""
    words = ascii(" ".join(case.words))[:200]
    print(f"--case {asked.seed}:{number}{only}  {case.family}: {'; '.join(wrong)}  [{words}]", flush=True)
    if asked.keep:
        folder = asked.keep / f"{asked.seed}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        case.write(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
