"""Options that have no effect are refused: whoever gave one expected something of it."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.core import ParameterSource

from bftrainer.errors import UnusedOptionsError

__all__ = ["refuse_unused"]


def refuse_unused(reasons: Mapping[str, str | bool | None]) -> None:
    """Refuse what was typed of options that change nothing in this call.

    Parameters
    ----------
    reasons : mapping of str to str, bool or None
        By the names of parameters why they have no effect, in a few words; empty, None or False if they have one.

    Raises
    ------
    UnusedOptionsError
        Naming all of them.
    """
    ctx = click.get_current_context()
    vain: dict[str, str] = {}
    for option in ctx.command.params:
        reason = reasons.get(str(option.name))
        typed = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if reason and typed:
            vain[max(option.opts, key=len)] = str(reason)
    if vain:
        raise UnusedOptionsError(vain)
