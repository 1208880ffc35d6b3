"""Options of the model of spot nodes, minute by minute: of traces that are generated, and of sweeps over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bftrainer.cli._shared.sizes import size_option

__all__ = ["minute_options"]


def minute_options(before: str = "") -> tuple[Callable[[Any], Any], ...]:
    """Options with the names of `MinuteOptions`, but for the levels.

    Parameters
    ----------
    before : str
        What each line of help begins with.
    """
    like = "or that of the trace it is like]"
    figures = (
        ("preemption-chance", f"Chance that a minute sees a preemption.  [default: 0.16338, {like}"),
        ("preemption-mean", f"Mean number of nodes of a preemption.  [default: 2.4138, {like}"),
        ("preemption-std", f"Its standard deviation.  [default: 2.0862, {like}"),
        ("addition-chance", f"Chance that a minute sees an addition.  [default: 0.14366, {like}"),
        ("addition-mean", f"Mean number of nodes of a regular addition.  [default: 2.5417, {like}"),
        ("addition-std", f"Its standard deviation.  [default: 1.9456, {like}"),
        ("big-addition-share", f"Share of additions of 11 to 31 nodes.  [default: 0.0588, {like}"),
    )
    return (
        *(click.option(f"--{name}", type=float, help=before + text) for name, text in figures),
        size_option("--initial-nodes", help=f"{before}Nodes at the start.  [default: 32, or the trace's mean]"),
        size_option("--max-nodes", help=f"{before}Nodes at most.  [default: 64, or the trace's largest number]"),
        click.option("--exact-mean", is_flag=True, default=None, help=f"{before}Let sizes have the means asked for."),
    )
