"""Same inputs, same results: over hash seeds, time zones, locales, numbers of workers, with and without the core.

What the results are is kept too, in `determinism.json`: it is the same under each Python and each version of what we
depend on that the tests run with. ``python -m tests.test_determinism`` writes it anew, after a change that is meant to
change results.
"""

import csv
import hashlib
import json
import re
import shlex
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.recurring import TRACES, write_world
from tests.tiny import spawn_all, write_inputs

KEPT = Path(__file__).with_name("determinism.json")
ZEUS = f"{shlex.join(TRACES)} --jobs jobs.toml"
COMMANDS = (
    # The bytes of pickles are of the version of pandas that wrote them.
    "convert evt.pkl idle.csv",
    "replay --solver dp --max-events 300 --output-dir plain",
    "replay --solver cbc --max-events 300 --no-baseline --output-dir asked",
    "replay --solver equal-share --initial random --seed 3 --max-events 100 --output-dir shared",
    "replay --sample tuned --solver dp --seed 5 --until 1800 --output-dir tuned",
    "replay --sample tuned --solver dp --seed 5 --until 1800 --policy gts --power-policy oracle --output-dir chosen",
    "replay --solver equal-share --compat published --max-events 100 --output-dir published",
    "sweep sweep.toml -o sweep --workers {workers}",
    "forecast -ndmap idle.csv -bdfn tasks.toml --solver dp --deadline 20s --horizon 30 --stretches 3 --json"
    " --workers {workers}",
    "import --format swf log.swf --window asked -o swf.parquet",
    "spot sweep --preemption-scale 1 --repeats 3 --days 0.2 --jobs {workers} --json",
    "tasks generate --scenario hpo --count 5 --seed 2 -o hpo.toml",
    "tasks generate --scenario nas --count 20 --checkpoint-s 20 --restart-s 40 -o saving.toml",
    "replay --tasks saving.toml --solver dp --max-events 300 --no-baseline --output-dir saving",
    "trace generate --days 2 --nodes 20 --seed 4 -o generated.parquet",
    "trace stats generated.parquet",
    "convert evt.pkl idle.parquet",
    "spot simulate --trace idle.parquet --depth 2",
    f"zeus simulate {ZEUS} --recurrences 20 --seed 3 --json",
    f"zeus compare {ZEUS} --seeds 3 --recurrences 10 --json",
)
SWF = "; MaxNodes: 4\n; UnixStartTime: 1788220800\n1 0 0 600 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n"
# What takes time, and what else is of this machine, this place and these versions.
TIMED = re.compile(r"(^|_)(wall|solve|backend|load|replay|baseline)_s(_|$)|^solvers$|_wall_share$")
OF_THIS_MACHINE = re.compile(r"^(versions?|command|engine|path|output_dir|workers|created|sources|inputs|provenance)$")
PLACES = {
    "elsewhere": {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
    "without the core": {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "C", "BFTRAINER_CORE": "0"},
}


def bare(value: Any) -> Any:
    """A JSON value without what takes time or is of this machine."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if not (TIMED.search(k) or OF_THIS_MACHINE.search(k))}
    return [bare(each) for each in value] if isinstance(value, list) else value


def values_of(path: Path) -> str:
    """Values in a file, without what takes time, in a form that no version of a library changes."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        columns = [name for name in table.column_names if not TIMED.search(name)]
        return repr([(name, table[name].to_pylist()) for name in columns])
    if path.suffix == ".json":
        return json.dumps(bare(json.loads(path.read_text())), sort_keys=True)
    if path.name == "step-logs.csv":
        rows = list(csv.reader(path.read_text().splitlines()))
        left = [number for number, name in enumerate(rows[0]) if "time" not in name.lower() or name == "time"]
        return repr([[row[number] for number in left] for row in rows])
    return path.read_text(errors="backslashreplace")


def answers(folder: Path, env: dict[str, str], workers: int) -> dict[str, str]:
    """What all commands answer and write, by command and file."""
    write_inputs(folder)
    write_world(folder)
    (folder / "log.swf").write_text(SWF)
    (folder / "sweep.toml").write_text(
        'schema = 1\n[base]\nnode_log = "idle.csv"\ntasks = "tasks.toml"\nsolver = "dp"\n[grid]\nTfwd = [5, 10, 20]\n'
    )
    found = {}
    done = spawn_all([line.format(workers=workers) for line in COMMANDS], folder, env)
    for line, answer in zip(COMMANDS, done, strict=True):
        assert answer.status == 0, (line, answer)
        if not line.startswith("replay"):
            said = json.dumps(bare(answer.json)) if answer.out.startswith("{") else answer.out
            found[line] = re.sub(r"\d+\.\d+ s\b", "? s", said)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and path.suffix != ".pkl" and not any(part.startswith(".") for part in name.parts):
            found[str(name)] = values_of(path)
    return found


@cache
def usual() -> dict[str, str]:
    """What is answered here, by one worker."""
    with TemporaryDirectory() as folder:
        return answers(Path(folder), {"PYTHONHASHSEED": "0"}, 1)


def digests(found: dict[str, str]) -> dict[str, str]:
    """A short digest of each."""
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in found.items()}


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_the_same_everywhere(place, tmp_path):
    """Neither hash seed, time zone, locale, number of workers nor the core makes a difference."""
    found = answers(tmp_path, PLACES[place], 2)
    assert found.keys() == usual().keys()
    assert {name: (text, usual()[name]) for name, text in found.items() if text != usual()[name]} == {}


@pytest.mark.long
def test_the_same_under_all_versions():
    """Each Python and each version of our dependencies that tests run with gives what is kept."""
    kept, found = json.loads(KEPT.read_text()), digests(usual())
    assert {name for name in kept.keys() | found.keys() if kept.get(name) != found.get(name)} == set()


if __name__ == "__main__":
    KEPT.write_text(json.dumps(digests(usual()), indent=1, sort_keys=True) + "\n")
