"""`bftrainer trace`: measure, generate, cut and share traces of nodes."""

from __future__ import annotations

import click

from bftrainer.cli._shared.lazy import LateGroup

__all__ = ["trace"]

_COMMANDS = {
    "anonymise": (
        "bftrainer.cli.logs.trace_anonymise",
        "anonymise",
        "Replace names by pseudonyms, so that a log can be shared.",
    ),
    "cut": ("bftrainer.cli.logs.trace_edit", "cut", "Cut a shorter window out of a node log."),
    "export": ("bftrainer.cli.logs.trace_export", "export", "Write a node log in another form, or as Batsim's jobs."),
    "filter": ("bftrainer.cli.logs.trace_edit", "filter_", "Keep some nodes, and idle intervals of some length."),
    "generate": (
        "bftrainer.cli.logs.trace_generate",
        "generate",
        "Generate a trace by a model, fitted to another or not.",
    ),
    "merge": ("bftrainer.cli.logs.trace_edit", "merge", "Make one node log of several."),
    "stats": ("bftrainer.cli.logs.trace_stats", "stats", "Print the figures of a trace."),
}


@click.group(cls=LateGroup, late=_COMMANDS)
def trace() -> None:
    """Measure, generate, cut and share traces of nodes."""
