"""Commands called in a directory of their own."""

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

from bftrainer.cli.group import cli, guarded
from tests.recurring import TRACES, write_world
from tests.tiny import Done, write_inputs

Call = Callable[..., Done]


def check_refusal(done: Done, *said: str, status: int = 2) -> None:
    """One line on stderr, which says all this, and the status."""
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    assert done.err.startswith("Error: ")
    assert [text for text in said if text not in done.err] == [], done.err


def assert_matches(pattern: str, text: str) -> None:
    """The text contains the pattern."""
    assert re.search(pattern, text), f"{pattern!r} not in {text!r}"


@cache
def all_commands() -> dict[str, click.Command]:
    """All groups and commands by the words that call them after `bftrainer`, each group before what it holds."""
    commands: dict[str, click.Command] = {"": cli}
    waiting = [""]
    while waiting:
        before = waiting.pop(0)
        group = commands[before]
        if isinstance(group, click.Group):
            with click.Context(group) as context:
                inside = {
                    f"{before} {name}".strip(): group.get_command(context, name)
                    for name in group.list_commands(context)
                }
            commands |= inside
            waiting += inside
    return commands


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: the small world's inputs and nothing else."""
    folder = tmp_path / "here"
    folder.mkdir()
    write_inputs(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def call(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """`call("replay", "-Tfwd", 10)` runs `bftrainer replay -Tfwd 10` in this process, as the entry point does."""
    del here
    monkeypatch.delenv("COLUMNS", raising=False)  # lines are as long as they are, unless a test says otherwise

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["bftrainer", *map(str, words)])
        capfd.readouterr()
        status = guarded(cli, "bftrainer")
        said = capfd.readouterr()
        return Done(status, said.out, said.err)

    return run


@pytest.fixture
def replay(call: Call) -> Call:
    """`replay(...)` runs `bftrainer replay` on the small world, by the dynamic programme unless told otherwise."""

    def run(*words: object, solver: str | None = "dp", without: tuple[str, ...] = ()) -> Done:
        inputs = {"-ndmap": "evt.pkl", "-bdfn": "Jbnd.pkl", "-scfn": "JNPs.pkl"}
        chosen = [pair for pair in inputs.items() if pair[0] not in (*words, *without)]
        options = [part for pair in chosen for part in pair]
        return call("replay", *options, *(() if solver is None else ("--solver", solver)), *words)

    return run


@pytest.fixture
def zeus(call: Call, here: Path) -> Call:
    """`zeus("simulate", ...)` runs `bftrainer zeus simulate ...` on the small world."""
    write_world(here)

    def run(command: str, *words: object, sample: bool = False) -> Done:
        return call("zeus", command, *(() if sample else TRACES), *words)

    return run
