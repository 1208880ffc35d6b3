"""Commands of README and docs give the files and figures that users rely on.

Words of messages are nobody's contract and are not looked at, but for figures and names among them.
"""

import json
import shlex
from functools import reduce
from operator import getitem
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.cli.conftest import here
from tests.golden.documented import ANY, LONG, SCENES, SWEEP, Step
from tests.golden.running import run_command

__all__ = ["here"]

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    "scene", [pytest.param(scene, marks=[pytest.mark.long] if scene in LONG else []) for scene in SCENES]
)
def test_documented_commands(scene, here):
    """Exit status, files, and key figures of each command of a scene."""
    (here / "tfwd.toml").write_text(SWEEP)
    for step in SCENES[scene]:
        words = [word.format(logs=LOGS) for word in shlex.split(step.words)]
        done = run_command(*words)
        assert done.status == 0, (words, done)
        check_facts(step, done.out, here)


def check_facts(step: Step, out: str, place: Path) -> None:
    """What a step says and has written is as its table has it."""
    for pattern in step.writes:
        written = list(place.glob(pattern))
        assert written, (step.words, pattern)
        assert all(path.stat().st_size for path in written), (step.words, pattern)
    assert [text for text in step.says if text not in out] == [], (step.words, out)
    for path, value in step.facts.items():
        keys = [int(key) if key.isdigit() else key for key in path.split("/")]
        there = reduce(getitem, keys, json.loads(out))
        wanted = pytest.approx(value) if isinstance(value, float) else value
        assert there is not None if value is ANY else there == wanted, (step.words, path, there)
    for name, count in step.rows.items():
        read = pyarrow.parquet.read_table if name.endswith(".parquet") else pyarrow.csv.read_csv
        assert read(place / name).num_rows == count, (step.words, name)
