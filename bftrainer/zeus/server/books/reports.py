"""What a trial reports by the end of an epoch: whether it can be true, and whether it was reported before."""

from __future__ import annotations

import math
from typing import Any, Protocol

from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.messages import LARGEST, LenientJobSpec, LenientTrainingResult


class StoredReport(Protocol):
    """A report as it is kept: epochs done, seconds and joules since the run began, and the metric, None for NaN."""

    epoch: Any
    time: Any
    energy: Any
    metric: Any


def report_fault(
    spec: LenientJobSpec, result: LenientTrainingResult, before: StoredReport | None, *, ended: bool
) -> tuple[str, str] | None:
    """Find what cannot be true about a report.

    Parameters
    ----------
    spec : LenientJobSpec
        The job.
    result : LenientTrainingResult
        The report.
    before : StoredReport or None
        What the trial reported last; epochs rise from report to report, and time and energy never fall.
    ended : bool
        Whether the trial ends with this report; then it must have cost something.

    Returns
    -------
    tuple of str, or None
        Name of the field at fault, and what was expected of it; None if the report can be true.
    """
    if before is not None:
        if result.current_epoch <= before.epoch:
            return "current_epoch", f"Expected an epoch after {before.epoch}, got {result.current_epoch}."
        for name, now, then in (("time", result.time, before.time), ("energy", result.energy, before.energy)):
            if now < then:
                return name, f"Expected at least {then:g}, as reported by epoch {before.epoch}, got {now:g}."
    return usage_fault(result.energy, result.time, spec.max_power, spec.eta_knob, ended=ended)


def is_repeated(result: LenientTrainingResult, stored: StoredReport) -> bool:
    """Whether a report is one that is kept already: clients repeat requests that got no answer."""
    metric = None if math.isnan(result.metric) else result.metric
    reported = (result.current_epoch, result.time, result.energy, metric)
    return reported == (stored.epoch, stored.time, stored.energy, stored.metric)


def is_storable(result: LenientTrainingResult) -> bool:
    """Whether databases can hold a report; what the published server takes may be beyond their numbers."""
    numbers = (result.time, result.energy, 0.0 if math.isnan(result.metric) else result.metric)
    return all(map(math.isfinite, numbers)) and abs(result.current_epoch) <= LARGEST
