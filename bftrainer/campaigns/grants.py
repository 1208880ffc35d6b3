"""What an administrator can grant to a harvester, and what each grant would bring on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer.campaigns.verdict import name_tasks
from bftrainer.report.intervals import estimate

NOTICE_S = 120.0
GRANTS: dict[str, dict[str, Any]] = {"chosen": {"give_way": "chosen"}, "notice": {"notice_s": NOTICE_S}}
"""Grants, and the options of a replay that has them."""
_WORDS = {
    "chosen": "if your scheduler lets the harvester choose which nodes to return",
    "notice": f"with {NOTICE_S / 60:g} minutes' notice before nodes are taken",
}
_WORTH = 0.01
WHY_LESS = "tasks keep other nodes, which leave at other times, and all later decisions differ"
"""Why more freedom may bring less."""


def measure_grants(kind: Mapping[str, Any], replays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compare replays with grants with *named*, the one without, stretch by stretch of their window.

    For each there are `useful_node_s`, `gain`, its change as a share of the useful node-seconds without, and
    `gain_ci95`, None where there are too few stretches to compare.
    """
    base, blocks = replays["named"]["useful_node_s"], replays["named"]["blocks"]
    number, grants = len(blocks["node_s"]), {}
    for name in ("named", *GRANTS):
        figures = replays[name]
        gain, bounds = figures["useful_node_s"] / base - 1.0 if base > 0 else 0.0, [None, None]
        pairs = zip(figures["blocks"]["node_s"], blocks["node_s"], strict=True)
        change = estimate([one - two for one, two in pairs]) if number > 1 else None
        if change is not None and change.half_width is not None and base > 0:
            half = change.half_width * number / base
            bounds = [gain - half, gain + half]
        grants[name] = {"useful_node_s": kind["useful_node_s"] * (1.0 + gain), "gain": gain, "gain_ci95": bounds}
    basis = f" Measured on {number} {blocks['unit']}s." if number else ""
    return {"kind": kind["name"], "sentence": _describe(kind["name"], grants) + basis, **grants}


def _describe(kind: str, grants: Mapping[str, Mapping[str, Any]]) -> str:
    """What each grant brings, in one sentence, and why one may bring less."""
    effects = " and ".join(f"{_describe_change(grants[name])} {_WORDS[name]}" for name in GRANTS)
    text = f"{name_tasks(kind)} would do {effects}."
    is_clear = [name for name in GRANTS if _is_clear(grants[name])]
    is_worth = any(grants[name]["gain"] >= _WORTH for name in is_clear)
    neither = f"Neither grant brings {100 * _WORTH:.0f} % here" if is_clear else "Neither grant matters here"
    text = f"{text[0].upper()}{text[1:]}" if is_worth else f"{neither}: {text}"
    return text + f" Less is possible: {WHY_LESS}." * any(grants[name]["gain"] < 0 for name in is_clear)


def _is_clear(grant: Mapping[str, Any]) -> bool:
    """Whether the interval of a gain does not hold 0."""
    low, high = grant["gain_ci95"]
    return low is not None and (low > 0.0 or high < 0.0)


def _describe_change(grant: Mapping[str, Any]) -> str:
    """A gain in words, with its interval; no word of more or less where that holds 0."""
    low, high = grant["gain_ci95"]
    interval = ""
    if low is not None:
        ends = [f"{round(100 * bound, 1) + 0.0:+.1f}" for bound in (low, high)]
        interval = f" ({ends[0]} to {ends[1]} %, 95 %)"
        if not _is_clear(grant):
            return f"no more and no less{interval}"
    return f"{100 * abs(grant['gain']):.1f} % {'more' if grant['gain'] >= 0 else 'less'}{interval}"
