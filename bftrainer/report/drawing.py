"""Figures for print, of traces and of finished runs, and the tools that all figures share.

Each is drawn on the given axes, or on those of a new figure, and returns them.
Drawing needs matplotlib (extra ``report``), which is imported on use; figures do not touch pyplot's state. Equal
figures give equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bftrainer.errors import OutputError, SettingsError, suggestion
from bftrainer.extras import require_extra
from bftrainer.model import NS_PER_S
from bftrainer.model.availability_trace import CountTrace, Survival
from bftrainer.model.records import FinishedRun
from bftrainer.report.charts import ledger_share, node_classes
from bftrainer.report.glossary import ASSUMED, GLOSSARY, assumption
from bftrainer.report.ledger import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("pdf", "png", "svg")
SIZE_IN = (7.0, 3.6)
HOUR_S = 3600.0
_COMPARED = ("efficiency", "loss_variability_share", "loss_horizon_share")
Curve = tuple[str, NDArray[np.float64], NDArray[np.float64]]
_DOTS_PER_INCH = 150

# No date, no version, and ids from a fixed salt: equal figures give equal bytes.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


def check_drawable(name: str) -> str:
    """Check a figure's file name and return its form; call this before the work that the figure shows.

    Raises
    ------
    OutputError
        If the suffix is no known form.
    SettingsError
        If matplotlib is not installed.
    """
    form = next((form for form in FORMS if name.lower().endswith(f".{form}")), None)
    if form is None:
        raise OutputError(f"{name}: Expected a figure's name to end in {', '.join(f'.{form}' for form in FORMS)}.")
    require_matplotlib()
    return form


def require_matplotlib() -> None:
    """Refuse to draw without matplotlib, which is not imported for the check.

    Raises
    ------
    SettingsError
        If matplotlib is not installed.
    """
    require_extra("Figures need", "report", "matplotlib")


def axes_or_new(ax: Axes | None, size_in: tuple[float, float] = SIZE_IN) -> Axes:
    """Return the given axes, or those of a new figure (width and height in inches) outside pyplot's state.

    Raises
    ------
    SettingsError
        If a new one is needed and matplotlib is not installed.
    """
    if ax is not None:
        return ax
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size_in, layout="constrained").add_subplot()


def plain(name: str) -> str:
    """Escape a name for Matplotlib, so that a dollar begins no formula and a leading _ hides no label."""
    text = name.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def figure_of(ax: Axes) -> Figure:
    """Figure that contains the axes."""
    from matplotlib.figure import Figure

    figure = ax.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise SettingsError("Expected axes that are part of a figure, got others.")
    return figure


def rendered(drawn: Axes | Figure, form: str) -> bytes:
    """Render a figure as the content of a file; equal figures give equal bytes.

    Parameters
    ----------
    drawn : matplotlib.axes.Axes or matplotlib.figure.Figure
        Axes stand for their figure.
    form : str
        One of `FORMS`.

    Raises
    ------
    SettingsError
        If the form is unknown.
    """
    if form not in FORMS:
        raise SettingsError(f"Expected a figure's form to be {', '.join(FORMS[:-1])} or {FORMS[-1]}, got {form!r}.")
    import matplotlib as mpl
    from matplotlib.axes import Axes

    figure = figure_of(drawn) if isinstance(drawn, Axes) else drawn
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "bftrainer", "svg.fonttype": "none"}):
        figure.savefig(stream, format=form, dpi=_DOTS_PER_INCH, metadata=METADATA[form])
    return stream.getvalue()


def plot_counts(counts: CountTrace, ax: Axes | None = None) -> Axes:
    """Live nodes over the hours of a trace."""
    ax = axes_or_new(ax)
    hours = (counts.time_ns - counts.time_ns[0]) / NS_PER_S / 3600.0
    ax.fill_between(hours, counts.count, step="post", color="tab:gray", alpha=0.3, label="there")
    ax.step(hours, counts.count, where="post", color="tab:gray", linewidth=0.5)
    ax.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    ax.margins(x=0)
    return ax


def plot_survival(survival: Survival, ax: Axes | None = None) -> Axes:
    """Share of nodes that stay longer than a time (Kaplan-Meier), over a logarithmic axis."""
    ax = axes_or_new(ax)
    steps = survival.thinned(2000)
    if steps.time_s.size:
        ax.step(np.append(steps.time_s[0] / 2.0, steps.time_s), np.append(1.0, steps.share), where="post")
    ax.set(xlabel="lifetime (s)", ylabel="share of nodes that stay longer", xscale="log", ylim=(0, 1.02))
    return ax


def trace_figure(counts: CountTrace | None, survival: Survival) -> Figure:
    """Nodes over time above the survival curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    if counts is not None:
        plot_counts(counts, above)
    plot_survival(survival, below)
    return figure


def plot_pool(runs: Sequence[FinishedRun], ax: Axes | None = None) -> Axes:
    """Idle nodes of the first run, and the nodes that tasks hold in each, over time."""
    ax = axes_or_new(ax)
    for place, run in enumerate(runs):
        if not run.steps["time_s"].size:
            raise SettingsError(f"{run.name}: The run ended before its first event.")
        hours = np.append(run.steps["time_s"], run.window_s) / HOUR_S
        if place == 0:
            idle = np.append(run.steps["idle"], run.steps["idle"][-1:])
            ax.fill_between(hours, idle, step="post", color="tab:gray", alpha=0.35, linewidth=0, label="idle")
        used = np.append(run.steps["used"], run.steps["used"][-1:])
        label = "used" if len(runs) == 1 else f"{plain(run.name)}: used"
        ax.step(hours, used, where="post", linewidth=0.7, label=label)
    ax.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    ax.margins(x=0)
    ax.legend(loc="upper right", frameon=False)
    return _marked(ax, runs, "used_node_s")


def plot_allocation(run: FinishedRun, ax: Axes | None = None) -> Axes:
    """Gantt chart: a row per task in order of their start, darker with more nodes."""
    ax = axes_or_new(ax)
    begin, end, task, nodes = run.holdings.spans(run.window_s)
    held = np.unique(task)
    rank = np.zeros(len(run.tasks["name"]), dtype=np.int64)
    started = run.tasks["started_s"][held]
    rank[held[np.argsort(np.where(np.isnan(started), np.inf, started), kind="stable")]] = np.arange(held.size)
    for shade, (mask, label, _) in zip((0.3, 0.5, 0.75, 1.0), node_classes(nodes.astype(np.float64)), strict=False):
        rows = rank[task[mask]]
        ax.barh(
            rows,
            (end[mask] - begin[mask]) / HOUR_S,
            left=begin[mask] / HOUR_S,
            height=0.8,
            color=(0.03, 0.27, 0.58, shade),
            linewidth=0,
            label=label,
        )
    ax.set(xlabel="time (h)", ylabel="tasks, in order of their start", xlim=(0, run.window_s / HOUR_S))
    ax.set_ylim(max(held.size, 1) - 0.5, -0.5)
    if held.size:
        ax.legend(loc="lower left", frameon=False, fontsize="small")
    return _marked(ax, [run], "used_node_s")


def plot_setting(runs: Sequence[FinishedRun], setting: str, figure: str = "efficiency", ax: Axes | None = None) -> Axes:
    """Plot a figure of the summary against a setting in which runs differ; a point per run.

    Raises
    ------
    SettingsError
        If runs have no such setting or figure, or one of them has no number there.
    """
    points = []
    for run in runs:
        settings = run.summary["settings"]
        if setting not in settings:
            raise SettingsError(f"Expected a setting of the runs, got {setting!r}.{suggestion(setting, settings)}")
        numbers = {key: value for key, value in run.summary.items() if isinstance(value, int | float)}
        if figure not in run.summary or (figure not in numbers and run.summary[figure] is not None):
            raise SettingsError(f"Expected a figure of the runs, got {figure!r}.{suggestion(figure, numbers)}")
        if run.summary[figure] is None:
            reason = " (replayed with --no-baseline, or tuned tasks whose work does not add up)"
            reason = reason if figure in _COMPARED else ""
            raise SettingsError(f"{run.name}: The run has no {figure}{reason}.")
        points.append((settings[setting], run.summary[figure]))
    ax = axes_or_new(ax)
    if all(isinstance(x, int | float) for x, _ in points):
        points.sort()
        ax.plot([x for x, _ in points], [y for _, y in points], marker="o")
    else:
        ax.bar([plain(str(x)) for x, _ in points], [y for _, y in points])
    ax.set(xlabel=setting, ylabel=figure)
    return _marked(ax, runs, figure)


def plot_losses(runs: Sequence[FinishedRun], ax: Axes | None = None) -> Axes:
    """Plot the ledger of the idle node-time, a bar a run; parts that no run has are left out.

    Raises
    ------
    SettingsError
        If no run has a ledger, as those of earlier versions, or had idle nodes.
    """
    ax = axes_or_new(ax)
    shares = {part: [100 * (ledger_share(run, part) or 0.0) for run in runs] for part in PARTS}
    if not any(map(any, shares.values())):
        raise SettingsError("No run has a ledger of its idle node-time; bftrainer replay makes it.")
    above, below = np.zeros(len(runs)), np.zeros(len(runs))
    for number, (part, known) in enumerate(shares.items()):
        amount = np.array(known)
        left = np.where(amount < 0, below, above)
        if np.round(amount, 6).any():
            label = GLOSSARY[f"ledger.{part}"].label
            ax.barh([plain(run.name) for run in runs], amount, left=left, label=label, color=f"C{number}")
        above, below = above + np.maximum(amount, 0.0), below + np.minimum(amount, 0.0)
    ax.invert_yaxis()
    ax.set(xlabel="idle node-time (%)")
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return _marked(ax, runs, "ledger.useful")


def plot_fragments(curves: Sequence[Curve], ax: Axes | None = None) -> Axes:
    """Share of idle intervals that end within a time; curves are (name, time in seconds, share that stays longer)."""
    ax = axes_or_new(ax)
    for name, time_s, stays in curves:
        ax.step(time_s / 60.0, 1.0 - stays, where="post", label=plain(name))
    ax.set(xlabel="length (min)", ylabel="share of idle intervals", xscale="log", ylim=(0, 1.02))
    if len(curves) > 1:
        ax.legend(frameon=False)
    return ax


def plot_energy(runs: Sequence[FinishedRun], ax: Axes | None = None) -> Axes:
    """Energy of each tuned task against the time that it took to its target, from submission.

    Raises
    ------
    SettingsError
        If no task of the runs is tuned and complete.
    """
    ax = axes_or_new(ax)
    drawn = 0
    for run in runs:
        tasks = run.tasks
        known = np.isfinite(tasks["energy_j"]) & np.isfinite(tasks["completed_s"])
        hours = (tasks["completed_s"] - tasks["submitted_s"])[known] / HOUR_S
        ax.scatter(hours, tasks["energy_j"][known] / 3.6e6, s=12, label=plain(run.name))
        drawn += int(known.sum())
    if not drawn:
        raise SettingsError("No tuned task of the runs reached its target.")
    ax.set(xlabel="time to target (h)", ylabel="energy (kWh)", xlim=(0, None), ylim=(0, None))
    if len(runs) > 1:
        ax.legend(frameon=False)
    return _marked(ax, runs, "energy_j")


def _marked(ax: Axes, runs: Sequence[FinishedRun], figure: str) -> Axes:
    """Add a title that names the runs whose scaling, on which the figure rests, was assumed."""
    found = ((run.name, assumption(run.summary)) for run in runs)
    names = [name for name, assumed in found if assumed is not None and assumed.bears(figure)]
    if names:
        of = "" if len(runs) == 1 else f" ({', '.join(map(plain, names))})"
        ax.set_title(f"{ASSUMED}{of}", loc="left", fontsize="small", wrap=True)
    return ax
