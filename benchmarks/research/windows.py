"""Disjoint windows of a log, on which what research questions get is measured."""

from __future__ import annotations

import click
import numpy as np


def window_starts_s(span_s: float, length_s: float, count: int) -> list[float]:
    """Starts of so many windows, spread evenly over a span: one in each part.

    Parameters
    ----------
    span_s, length_s : float
        Of the log or a part of it, and of each window.
    count : int

    Raises
    ------
    click.UsageError
        If they would overlap.
    """
    if count * length_s > span_s:
        raise click.UsageError(
            f"Expected {count} windows of {length_s / 3600:g} h in {span_s / 3600:.1f} h to be apart."
        )
    return [float(each) for each in np.arange(count) * span_s / count]
