"""What an administrator can grant to a harvester, and what each grant would bring on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer.report.intervals import estimate

NOTICE_S = 120.0
GRANTS: dict[str, dict[str, Any]] = {"chosen": {"give_way": "chosen"}, "notice": {"notice_s": NOTICE_S}}
"""Grants, and the options of a replay that has them."""
_WORDS = {
    "chosen": "if your scheduler lets the harvester choose which nodes to return",
    "notice": f"with {NOTICE_S / 60:g} minutes' notice before nodes are taken",
}


def measure_grants(kind: Mapping[str, Any], replays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compare replays with grants with the one without, stretch by stretch of their window.

    Parameters
    ----------
    kind : mapping
        The kind of tasks, with its useful node-seconds in the whole window.
    replays : mapping of str to mapping
        Figures of *named*, the replay without a grant, and of those with each of `GRANTS`, of the same window.

    Returns
    -------
    dict
        `kind`, `sentence`, and for *named* and each grant `useful_node_s`, `gain`, its change as a share of the
        useful node-seconds without, and `gain_ci95`; None where there are too few stretches to compare.
    """
    named = replays["named"]
    base, blocks = named["useful_node_s"], named["blocks"]["node_s"]
    found: dict[str, Any] = {}
    for name in ("named", *GRANTS):
        figures = replays[name]
        pairs = zip(figures["blocks"]["node_s"], blocks, strict=True)
        change = estimate([one - two for one, two in pairs]) if blocks else None
        half = None
        if change is not None and change.half_width is not None and base > 0:
            half = change.half_width * len(blocks) / base
        gain = figures["useful_node_s"] / base - 1.0 if base > 0 else 0.0
        bounds = [None, None] if half is None else [gain - half, gain + half]
        found[name] = {"useful_node_s": kind["useful_node_s"] * (1.0 + gain), "gain": gain, "gain_ci95": bounds}
    unit, number = named["blocks"]["unit"], len(blocks)
    basis = f" Measured on {number} {unit}s." if blocks else ""
    return {"kind": kind["name"], "sentence": _sentence(kind["name"], found) + basis, **found}


def _sentence(kind: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """What each grant brings, in one sentence."""
    who = "your tasks" if kind == "own" else f"{kind} models"
    effects = " and ".join(f"{_change(found[name])} {_WORDS[name]}" for name in GRANTS)
    if any(_is_clear(found[name]) for name in GRANTS):
        return f"{who[0].upper()}{who[1:]} would do {effects}."
    return f"Neither grant matters here: {who} would do {effects}."


def _is_clear(grant: Mapping[str, Any]) -> bool:
    """Whether the interval of a gain does not hold 0."""
    low, high = grant["gain_ci95"]
    return low is not None and (low > 0.0 or high < 0.0)


def _change(grant: Mapping[str, Any]) -> str:
    """A gain in words, with its interval; no word of more or less where that holds 0."""
    low, high = (None if bound is None else 100 * bound for bound in grant["gain_ci95"])
    interval = "" if low is None else f" ({low:+.1f} to {high:+.1f} %, 95 %)"
    if low is not None and not _is_clear(grant):
        return f"no more and no less{interval}"
    return f"{100 * abs(grant['gain']):.1f} % {'more' if grant['gain'] >= 0 else 'less'}{interval}"
