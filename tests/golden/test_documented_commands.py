"""Each command of README and docs runs, and what it writes and answers are facts that its users rely on.

Words of messages are nobody's contract and are not looked at, but for figures and names among them.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import httpx
import pyarrow.csv
import pyarrow.parquet
import pytest

from bftrainer.cli._shared.group import cli
from bftrainer.zeus.server.app import create_app
from tests.cli.conftest import call, here
from tests.golden.documented import ANY, LONG, SCENES, SLOW, Step
from tests.golden.documented_files import FILES
from tests.golden.running import run_command
from tests.tiny import installed
from tests.waiting import until
from tests.zeus.server.support import DATA, SPEC, free_port, in_folder, listening, run

__all__ = ["call", "here"]

LOGS = Path(__file__).parent / "logs"
MARKS = {scene: [pytest.mark.long] for scene in LONG} | {scene: [pytest.mark.slow] for scene in SLOW}
EXECUTABLE = ("sinfo", "squeue")


@pytest.fixture
def place(here, monkeypatch):
    """The working directory, with files that commands take, and a toy of Slurm on the path."""
    for name, text in FILES.items():
        (here / name).write_text(text.format(python=sys.executable, work=100_000) if name.endswith(".toml") else text)
    (here / "more.toml").write_text((here / "live.toml").read_text().replace('"line"', '"other"'))
    for name in EXECUTABLE:
        (here / name).chmod(0o755)
    with closing(sqlite3.connect(here / "zeus.db")) as connection:
        connection.executescript((DATA / "bso_ddl.sql").read_text())
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    return here


@pytest.fixture
def server(request, tmp_path):
    """Address of a server in this process with two jobs, where the scene asks one."""
    if not any("{server}" in step.words for step in SCENES[request.getfixturevalue("scene")]):
        yield None
        return
    with listening(create_app(in_folder(tmp_path))) as url, httpx.Client(base_url=url) as client:
        for name in ("t-1", "t-2"):
            assert client.post("/jobs", json=SPEC | {"job_id": name, "beta_knob": None}).status_code == 201
        for _ in range(10):
            run(client, "t-1", lambda size: 100.0 * size)
        yield url


@pytest.fixture
def harvest(request, place):
    """A harvest that runs in `mine`, where the scene is about one; it is the only process besides this one."""
    if request.getfixturevalue("scene") != "harvest that runs":
        yield
        return
    words = ("harvest", "run", "live.toml", "--max-nodes", "1", "--stay", "-o", "mine")
    with subprocess.Popen([installed("bftrainer"), *words], cwd=place, stdout=-1, stderr=-1) as process:
        try:
            until(lambda: (place / "mine" / "status.json").exists())
            yield
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _own_logging():
    """What a server that ends here has told the log to do ends with it: its stream is closed."""
    loggers = [logging.getLogger(name) for name in ("bftrainer", "uvicorn", "uvicorn.error")]
    kept = [(each, each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for each, handlers, propagate, level in kept:
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.mark.usefixtures("harvest")
@pytest.mark.parametrize("scene", [pytest.param(scene, marks=MARKS.get(scene, [])) for scene in SCENES])
def test_documented_commands(scene, call, place, server):
    """Exit status, files, and key figures of each command of a scene."""
    # A server ends with a signal to this process, which the entry point turns into a status.
    invoke = call if scene == "serving" else run_command
    port = free_port()
    if scene == "serving":
        threading.Thread(target=_end_server, args=(port,), daemon=True).start()
    if scene == "first job":
        pytest.importorskip("sklearn")
    for step in SCENES[scene]:
        logdir = next(place.glob("logs/*"), None)
        places = {"logs": LOGS, "logdir": logdir, "server": server, "port": port}
        words = [word.format(**places) for word in shlex.split(step.words)]
        done = invoke(*words)
        assert done.status == step.status, (words, done)
        check_facts(step, done.out, place)


def _end_server(port: int) -> None:
    """Ask a server of this process to end, as soon as it answers."""
    until(lambda: _answers(port))
    os.kill(os.getpid(), signal.SIGTERM)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def check_facts(step: Step, out: str, place: Path) -> None:
    """What a step says and has written is as its table has it."""
    for pattern in step.writes:
        written = list(place.glob(pattern))
        assert written, (step.words, pattern)
        assert all(path.stat().st_size for path in written), (step.words, pattern)
    assert [text for text in step.says if text not in out] == [], (step.words, out)
    for path, value in step.facts.items():
        there = at_path(json.loads(out), path)
        wanted = pytest.approx(value) if isinstance(value, float) else value
        assert there is not None if value is ANY else there == wanted, (step.words, path, there)
    for name, count in step.rows.items():
        read = pyarrow.parquet.read_table if name.endswith(".parquet") else pyarrow.csv.read_csv
        assert read(place / name).num_rows == count, (step.words, name)


def at_path(value: Any, path: str) -> Any:
    """The value at a path of keys and places."""
    for part in path.split("/"):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def leaves(group: click.Group, context: click.Context, before: str = "") -> dict[str, click.Command]:
    """All commands below a group that are no groups, by the words after the program's name."""
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= leaves(command, click.Context(command, parent=context), f"{before}{name} ")
        else:
            found[f"{before}{name}"] = command
    return found


def test_every_command_is_here():
    """Each command that there is has a step."""
    known = set(leaves(cli, click.Context(cli)))
    steps = [f"{step.words} " for steps in SCENES.values() for step in steps]
    run = {name for name in known if any(words.startswith(f"{name} ") for words in steps)}
    assert sorted(known - run) == []
