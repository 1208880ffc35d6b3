"""Small files that cases damage: shipped samples, those of the tests' own helpers, and what commands make of them."""

import json
import os
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bftrainer.cli.group import cli, guarded
from bftrainer.replay.decision_journal import DecisionJournal
from tests.recurring import JOB, write_world
from tests.schedulers.conformance.histories import COUNTED, NAMED, PLAIN
from tests.tiny import write_inputs
from tests.zeus.master.driven import FAKE, PYTHON
from tests.zeus.server.support import DATA

TESTS = Path(__file__).parents[1]
SAMPLES, FIXTURES, CORPUS = TESTS.parent / "datasets", TESTS / "legacy" / "fixtures", TESTS / "corpus"
_HISTORY = replace(PLAIN, downtimes=(("n2", 200, 260),))
_RUN = "replay -ndmap idle.csv -bdfn tasks.toml --solver dp --output-dir"
_MADE = f"""
convert evt.pkl idle.csv
convert evt.pkl idle.parquet
convert evt.pkl evt2.csv
convert Jbnd.pkl native.toml -scfn JNPs.pkl
trace generate --days 0.05 --nodes 6 --seed 1 -o made.parquet
{_RUN} run
{_RUN} power -bdfn tuned.toml --idle-power 50 --power-cap cap.csv --carbon 300
sweep sweep.toml -o swept --workers 1
spot simulate --trace spot.csv -o spot
zeus simulate --train train.csv --power power.csv --recurrences 3 --output zeus.json {" ".join(JOB)}
master run job.toml --log-base logs --quiet
harvest run live.toml --max-nodes 4 -o harvest
"""


@dataclass(frozen=True)
class Special:
    """What stands in the place of a file: a pipe, a folder, a link, a file with a hole."""

    kind: str
    target: str = ""

    def make(self, path: Path) -> None:
        """Make it."""
        if self.kind == "fifo":
            os.mkfifo(path)
        elif self.kind == "folder":
            path.mkdir()
        elif self.kind == "link":
            path.symlink_to(self.target)
        else:
            path.touch()
            os.truncate(path, 1 << 40)


Files = dict[str, bytes | Special]


def write_files(folder: Path, files: Files) -> None:
    """Write files by name below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Special):
            content.make(path)
        else:
            path.write_bytes(content)


def build(folder: Path) -> None:
    """Make all files in an empty folder; the process ends with the last, a run that is killed."""
    os.chdir(folder)
    write_inputs(folder)
    write_world(folder)
    for path in (CORPUS / "seeds").iterdir():
        command = json.dumps([*PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])
        (folder / path.name).write_text(path.read_text().replace("COMMAND", command))
    with closing(sqlite3.connect(folder / "zeus.db")) as connection:
        connection.executescript((DATA / "bso_ddl.sql").read_text())
    with tarfile.open(folder / "evt.tar.gz", "w:gz") as archive:
        archive.add(folder / "evt.pkl", "evt.pkl")
    for line in _MADE.strip().splitlines():
        sys.argv = ["bftrainer", *line.split()]
        if guarded(cli, "bftrainer"):
            raise AssertionError(f"bftrainer {line} failed.")
    next((folder / "logs").iterdir()).rename(folder / "logs" / "m")  # its name tells the time
    for name in ("journal.jsonl", "history.json"):
        text = (folder / "logs" / "m" / name).read_text()
        (folder / "logs" / "m" / name).write_text(text.replace(str(folder), "."))
    write = DecisionJournal.write

    def write_and_end(journal: DecisionJournal) -> None:
        """Write decisions, then end as a killed process does."""
        write(journal)
        os._exit(0)

    DecisionJournal.write = write_and_end  # type: ignore[method-assign]
    sys.argv = ["bftrainer", *_RUN.split(), "unfinished", "--checkpoint-every", "0.001"]
    guarded(cli, "bftrainer")
    raise AssertionError("The run was not ended.")


@cache
def world() -> dict[str, bytes]:
    """All files by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        code = "import sys; from pathlib import Path; from tests.fuzzing.world import build; build(Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(folder)]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"The files to damage cannot be made:\n{done.stdout}{done.stderr}")
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    others = [*SAMPLES.glob("*.[cpt]*"), *FIXTURES.glob("*.pkl"), *(FIXTURES / "logs").glob("*")]
    files |= {path.name: path.read_bytes() for path in others if path.is_file()}
    return dict(sorted((files | scheduler_logs()["slurm"]).items()))


@cache
def scheduler_logs() -> dict[str, dict[str, bytes]]:
    """Files of one machine's history, by format."""
    logs = {}
    for name, write in (NAMED | COUNTED).items():
        with tempfile.TemporaryDirectory() as folder:
            names = sorted(path.name for path in write(Path(folder), _HISTORY).paths)
            logs[name] = {file: Path(folder, file).read_bytes() for file in names}
    return logs


def pick_files(*names: str) -> Files:
    """Files of the world: those of these names, and all below the directories among them."""
    return {name: data for name, data in world().items() if any(f"{name}/".startswith(f"{top}/") for top in names)}


def corpus() -> list[dict[str, Any]]:
    """Commands that faults were found by, their files, and what is expected of them."""
    cases: list[dict[str, Any]] = tomllib.loads((CORPUS / "table.toml").read_text())["case"]
    return cases


def files_of(entry: dict[str, Any]) -> Files:
    """Files of an entry: those of the corpus, of the small world, and what is no file."""
    files = pick_files(*entry.get("beside", []))
    for name, content in entry.get("files", {}).items():
        kind, _, target = content.partition(":")
        files[name] = (CORPUS / "files" / target).read_bytes() if target else Special(kind)
    return files
