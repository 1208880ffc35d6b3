"""Small files that cases damage: shipped samples, those of the tests' own helpers, and what commands make of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import tarfile
import tempfile
import tomllib
import warnings
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bftrainer.cli._shared.group import cli, guarded
from bftrainer.cli.harvest.harvest import DEFAULTS
from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_directory import EventJournal, describe_status
from bftrainer.harvest.harvest_events import Submitted
from bftrainer.harvest.session import SETTINGS
from bftrainer.objectives import get_objective
from bftrainer.replay.decision_journal import DecisionJournal
from bftrainer.runs import ReplayConfig
from tests.recurring import JOB, write_world
from tests.schedulers.conformance.histories import COUNTED, NAMED, History, Job
from tests.tiny import inputs
from tests.zeus.master.driven import FAKE, PYTHON
from tests.zeus.server.support import DATA

TESTS = Path(__file__).parents[1]
SAMPLES, FIXTURES, CORPUS = TESTS.parent / "datasets", TESTS / "legacy" / "fixtures", TESTS / "corpus"
_HISTORY = History(
    (Job(50, 150, ("n1", "n2")), Job(120, 200, ("n3",)), Job(150, 250, ("n1",)), Job(390, 500, ("n4",))),
    (("n2", 200, 260),),
)


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


_MADE = (
    *("convert evt.pkl idle.csv", "convert evt.pkl idle.parquet", "convert Jbnd.pkl native.toml -scfn JNPs.pkl"),
    *("convert evt.pkl evt2.csv", "trace generate --days 0.05 --nodes 6 --seed 1 -o made.parquet"),
    "replay -ndmap idle.csv -bdfn tasks.toml --solver dp --output-dir run",
    "replay -ndmap idle.csv -bdfn tuned.toml --solver dp --idle-power 50 --power-cap cap.csv --carbon 300 "
    "--output-dir power",
    *("sweep sweep.toml -o swept --workers 1", "spot simulate --trace spot.csv -o spot"),
    " ".join(("zeus simulate --train train.csv --power power.csv --recurrences 3 --output zeus.json", *JOB)),
    "master run job.toml --log-base logs --quiet",
)
_TIMED = re.compile(r"(load|replay|baseline|wall|backend|solve)_s(_.*)?")


def _first(folder: Path) -> None:
    """Write the files that no command makes."""
    write_world(folder)
    for name, data in inputs().items():
        (folder / name).write_bytes(data)
    for path in (CORPUS / "seeds").iterdir():
        command = json.dumps([*PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])
        (folder / path.name).write_text(path.read_text().replace("COMMAND", command))
    with closing(sqlite3.connect(folder / "zeus.db")) as connection:
        connection.executescript((DATA / "bso_ddl.sql").read_text())
    with tarfile.open(folder / "evt.tar.gz", "w:gz") as archive:
        archive.add(folder / "evt.pkl", "evt.pkl")


def _begin_harvest(place: Path) -> None:
    """Write what a harvest has that begins: nothing has happened to it."""
    config = ReplayConfig(**{name: DEFAULTS.get(name, getattr(ReplayConfig(), name)) for name in SETTINGS})
    settings, start_ns = {name: getattr(config, name) for name in SETTINGS}, 1_700_000_000 * 10**9
    EventJournal(place).begin({"start_ns": start_ns, "settings": settings, "stays": False})
    made = Controller(config.settings(get_objective(str(config.objective)), "dp"), start_ns, HarvestLimits())
    made.step(0.0, [Submitted("live.toml", tomllib.loads((CORPUS / "seeds" / "live.toml").read_text())["task"][0])])
    told = describe_status(made) | {"notes": ["J0 is here."], "over": None, "process": 1}
    (place / "status.json").write_text(json.dumps(told))


def _build(folder: Path) -> None:
    os.chdir(folder)
    _first(folder)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    (folder / "state" / "bftrainer").mkdir(parents=True)
    _begin_harvest(folder / "harvest")
    for command in _MADE:
        sys.argv = ["bftrainer", *command.split()]
        if guarded(cli, "bftrainer"):
            raise AssertionError(f"bftrainer {command} failed.")
    next((folder / "logs").iterdir()).rename(folder / "logs" / "m")  # its name tells the time
    for name in ("journal.jsonl", "history.json"):
        told = folder / "logs" / "m" / name
        told.write_text(told.read_text().replace(str(folder), "."))
    write = DecisionJournal.write

    def ending(journal: DecisionJournal) -> None:
        """Write decisions, then end as a killed process does."""
        write(journal)
        os._exit(0)

    DecisionJournal.write = ending  # type: ignore[method-assign]
    sys.argv = ["bftrainer", *_MADE[5].replace("dir run", "dir unfinished").split(), "--checkpoint-every", "0.001"]
    guarded(cli, "bftrainer")
    raise AssertionError("The run was not ended.")


def _settled(path: Path) -> None:
    """Set wall-clock times in a result to 0: the same case finds the same bytes."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        for at, name in enumerate(table.column_names):
            if _TIMED.fullmatch(name):
                still = [None if each is None else 0.0 for each in table.column(at).to_pylist()]
                table = table.set_column(at, table.schema.field(at), pa.array(still, pa.float64()))
        pq.write_table(table, path)
    elif path.name == "summary.json":

        def settled(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            still = {key: 0.0 if _TIMED.fullmatch(key) else settled(each) for key, each in value.items()}
            return still | ({"solve_wall_share": None} if "wall_s" in still else {})

        path.write_text(json.dumps(settled(json.loads(path.read_bytes())), indent=2))


def signed_anew(files: dict[str, Any]) -> dict[str, Any]:
    """Files whose manifests have the checksums of what is there."""
    signed = dict(files)
    for name in sorted(files, reverse=True):  # those within a directory before its own
        folder, _, last = name.rpartition("/")
        if last != ".bftrainer" or not isinstance(files[name], bytes):
            continue
        lines = []
        for line in files[name].decode(errors="replace").splitlines():
            inside = signed.get(f"{folder}/{line[66:]}")
            lines.append(f"{hashlib.sha256(inside).hexdigest()}  {line[66:]}" if isinstance(inside, bytes) else line)
        signed[name] = "".join(f"{line}\n" for line in lines).encode()
    return signed


@cache
def world() -> dict[str, bytes]:
    """All files by name; made in a process of its own, as commands start threads."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of forks beside threads, which have nothing to do here
            process = os.fork()
        if not process:
            try:
                os.dup2(os.open(folder / "said", os.O_WRONLY | os.O_CREAT), 1)
                os.dup2(1, 2)
                _build(folder)
            finally:
                os._exit(1)
        if os.waitpid(process, 0)[1]:
            raise AssertionError(f"The files to damage cannot be made:\n{(folder / 'said').read_text()}")
        for path in folder.rglob("*"):
            if len(path.relative_to(folder).parts) > 1 and path.is_file():
                _settled(path)
        found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {name: data for name, data in found.items() if not name.startswith(("state/", "said"))}
    others = [*SAMPLES.glob("*.[cpt]*"), *FIXTURES.glob("*.pkl"), *(FIXTURES / "logs").glob("*")]
    found |= {path.name: path.read_bytes() for path in others if path.is_file()}
    found |= scheduler_logs()["slurm"][1]
    return signed_anew(dict(sorted(found.items())))


@cache
def scheduler_logs() -> dict[str, tuple[str, dict[str, bytes]]]:
    """By name: format and files of one machine's history."""
    found = {}
    for name, write in (*NAMED.items(), *((f"{name} counts", write) for name, write in COUNTED.items())):
        with tempfile.TemporaryDirectory() as folder:
            names = sorted(path.name for path in write(Path(folder), _HISTORY).paths)
            found[name] = name.split()[0], {each: Path(folder, each).read_bytes() for each in names}
    return found


@cache
def corpus() -> list[dict[str, Any]]:
    """What was found once: commands, files and what is expected of them."""
    table = CORPUS / "table.toml"
    return tomllib.loads(table.read_text())["case"] if table.exists() else []


def files_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Files of an entry: those of the corpus, of the small world, and what is no file."""
    files: dict[str, Any] = {}
    for name in entry.get("beside", []):
        files |= {each: data for each, data in world().items() if each == name or each.startswith(f"{name}/")}
    for name, content in entry.get("files", {}).items():
        kind, _, target = content.partition(":")
        files[name] = Special(kind) if kind in ("fifo", "folder", "hole") else (CORPUS / "files" / target).read_bytes()
    return files
