"""Where ours differs from the published simulator on a golden case, always, and why: nothing else may differ."""

from __future__ import annotations

from typing import NamedTuple


class Deviation(NamedTuple):
    """One row of the table.

    Parameters
    ----------
    where : str
        A misuse of `units.json`, or a policy's options in `alibaba_v100.json`.
    published, ours : str
        Exception, or what happens without one.
    parts : frozenset of str
        What else differs, as `Answer.differences` calls it.
    reason : str
        Why ours differs.
    """

    where: str
    published: str
    ours: str
    parts: frozenset[str]
    reason: str


EXCEPTION = frozenset({"exception"})
# The recording of an endless simulation was cut off at some point, without the generator's state.
CUT_OFF = frozenset({"exception", "observations", "path generator"})

PROTOCOL = "Methods called out of order say so by an error of their own, not by what happens to break inside."
INPUT = "What cannot be used is refused by a ValueError, not by an assertion, which `python -O` removes."

DEVIATIONS = (
    Deviation(
        "{'concurrency': True}",
        "Hang",
        "TuningError",
        CUT_OFF,
        "A job of a group is run again at most 100 times, so that a target out of reach ends in an error.",
    ),
    Deviation("{'concurrency': False}", "AssertionError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("explore: next twice", "TypeError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("explore: report before next", "TypeError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("explore: report twice", "AssertionError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("pruning bso: predict unregistered", "KeyError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("gts: predict unregistered", "KeyError", "TuningError", EXCEPTION, PROTOCOL),
    Deviation("pruning bso: observe converged=None in pruning", "AssertionError", "TuningInputError", EXCEPTION, INPUT),
    Deviation("Job.gen_command without command", "AssertionError", "TuningInputError", EXCEPTION, INPUT),
    Deviation("Job.scale_lr without lr", "AssertionError", "TuningInputError", EXCEPTION, INPUT),
    Deviation(
        "pruning bso: deepcopy after register (passing a used BSO to the Simulator)",
        "TypeError",
        "no exception",
        EXCEPTION,
        "State is explicit, without a generator that cannot be copied.",
    ),
)


def deviation(where: str, published: str | None) -> Deviation | None:
    """The row of the table for a case, if there is one."""
    found = [row for row in DEVIATIONS if (row.where, row.published) == (where, published)]
    return found[0] if found else None
