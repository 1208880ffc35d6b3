"""Compare the product with the reference on many random worlds: `python -m tests.reference --worlds 2000 --seed 1`."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.reference.comparison import compare, describe, play_product, play_reference
from tests.reference.random_worlds import draw_world

SHOWN = 10


def main() -> int:
    """Play the worlds; the exit status is 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.reference", description=__doc__)
    parser.add_argument("--worlds", type=int, default=2000, help="how many worlds (2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all worlds (1)")
    parser.add_argument("--case", type=int, help="play this world of the seed alone, and show all differences")
    asked = parser.parse_args()
    cases = range(asked.worlds) if asked.case is None else [asked.case]
    began, kinds, seen, differing = time.perf_counter(), Counter[str](), Counter[str](), 0
    for case in cases:
        world = draw_world(asked.seed, case)
        with tempfile.TemporaryDirectory() as folder:
            result = play_product(world, Path(folder))
        reference = play_reference(world, result)
        differences = compare(world, result, reference)
        kinds.update(world.kinds)
        seen.update(describe(reference))
        differing += bool(differences)
        if differences:
            print(f"--seed {asked.seed} --case {case}: {len(differences)} differences in a world of {world.kinds}")
            for line in differences[: SHOWN if asked.case is None else None]:
                print(f"    {line}")
    for title, counts in (("worlds", kinds), ("seen", seen)):
        print(f"{title:8}", ", ".join(f"{number} {name}" for name, number in counts.items()))
    print(f"{differing} of {len(cases)} worlds differ; {time.perf_counter() - began:.0f} s")
    return differing > 0


if __name__ == "__main__":
    raise SystemExit(main())
