"""What earlier versions had, and this one has not, says in one line what replaces it."""

from __future__ import annotations

import click
import pytest

from bftrainer.cli._shared.group import cli
from bftrainer.cli._shared.removed import COMMANDS, OPTIONS
from tests.cli.conftest import check_refusal


def find_command(words: str) -> click.Command | None:
    """The command of these words after `bftrainer`; None if there is none."""
    command: click.Command | None = cli
    for word in words.split():
        if not isinstance(command, click.Group):
            return None
        command = command.get_command(click.Context(command, resilient_parsing=True), word)
    return command


@pytest.mark.parametrize("words", COMMANDS)
def test_removed_commands_name_what_replaces_them(call, words):
    """Status 2 and one line, also with arguments; none of them is still there."""
    assert find_command(words) is None
    for more in ((), ("some.file", "--option")):
        done = call(*words.split(), *more)
        check_refusal(done)
        assert COMMANDS[words] in done.err


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_removed_options_name_what_replaces_them(call, words, option):
    """Status 2 and one line; their commands are there, and have them no more."""
    command = find_command(words)
    assert command is not None
    assert option not in [name for param in command.params for name in param.opts]
    done = call(*words.split(), option, "value")
    check_refusal(done)
    assert f"{option} was removed: {OPTIONS[words, option]}" in done.err
