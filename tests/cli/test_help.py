"""What help shows: options in sections, examples that run; one flag for one thing in all commands; browsers."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from bftrainer.cli.group import cli
from bftrainer.cli.replay import replay as replay_command
from bftrainer.report.glossary import GLOSSARY, JUDGED


def commands(command=cli, path=()):
    """Names and commands below the root that are no groups."""
    with click.Context(command) as ctx:
        for name in command.list_commands(ctx):
            each = command.get_command(ctx, name)
            yield from commands(each, (*path, name)) if isinstance(each, click.Group) else [((*path, name), each)]


ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in commands()]


def example(command):
    """The words of the example that a command's help ends with."""
    return shlex.split(command.epilog.removeprefix("Example: bftrainer "))


@pytest.mark.parametrize(("path", "command"), ALL)
def test_help_ends_with_an_example_that_parses(path, command, tmp_path, monkeypatch):
    """It names the command, takes one line of a narrow terminal, and its options are some that there are."""
    monkeypatch.chdir(tmp_path)
    assert len(command.epilog) <= 100
    words = example(command)
    assert tuple(words[: len(path)]) == path
    command.make_context("bftrainer", words[len(path) :])


def test_help_shows_common_options(call, monkeypatch):
    """The help of replays shows fifteen options, the whole help each option once, with a sentence, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    common = [
        *("-ndmap", "-bdfn", "--sample", "--since", "--until", "-Tfwd", "-maxJ", "--solver", "--objective"),
        *("-o", "--report", "--open", "--force", "--json", "--resume"),
    ]
    short = call("replay", "--help").out
    assert re.findall(r"^  (-[^\s,]+)", short, re.MULTILINE) == common
    assert short.count("--help-all") == 1
    whole = re.findall(r"^  (-[^\s,]+)", call("replay", "--help-all").out, re.MULTILINE)
    assert max(map(len, call("replay", "--help-all").out.splitlines())) <= 80
    assert all(getattr(option, "help", "") for option in replay_command.params)
    options = [option.opts[0] for option in replay_command.params]
    # click keeps the option of help as the first context named it.
    assert sorted({*whole} - {"-h", "--help"}) == sorted(["--help-all", *options])


def test_output_goes_to_o():
    """Every command that writes what it is asked for takes -o, and what that names is called output."""
    for path, command in commands():
        flags = {flag: option for option in command.params for flag in option.opts}
        if {"--output", "--output-dir"} & flags.keys():
            assert "-o" in flags, path


def test_commands_that_report_do_so_in_json():
    """All but those that make a file, or change what a server keeps, and say in a line that they did."""
    flags = {
        " ".join(path): {flag for option in command.params for flag in option.opts} for path, command in commands()
    }
    assert {name for name, known in flags.items() if "--json" not in known} == {
        *("bso serve", "convert", "plot", "report"),
        *("harvest add", "harvest stop", "tasks generate", "trace edit"),
    }


def test_kinds_of_figures_are_listed(call):
    """`plot --list` needs no run, and has a line for each kind that the argument takes, and for each metric."""
    kinds, _, metrics = call("plot", "--list").out.partition("\n\n")
    assert [line.split()[0] for line in kinds.splitlines()] == list(dict(commands())[("plot",)].params[0].type.choices)
    shown = call("plot", "--help").out
    assert all(f"  {line}\n" in shown for line in kinds.splitlines())
    told = [line[2:].split()[0] for line in metrics.splitlines()[1:]]
    assert told == list(GLOSSARY)
    assert [line[2:].split()[0] for line in metrics.splitlines()[1:] if line[0] in "+-"] == list(JUDGED)
