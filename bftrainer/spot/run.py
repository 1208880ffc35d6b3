"""Simulated training on preemptible nodes: inputs from files, time spent, work done, cost, files and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.errors import SettingsError, ineffective_options
from bftrainer.files.opening import SAMPLE_SPOT_PROFILE, sample_path
from bftrainer.files.text_files import write_csv
from bftrainer.files.writing import file_source
from bftrainer.model import NS_PER_S, NodeLog, iso
from bftrainer.nodelogs.availability import CountTrace, read_availability
from bftrainer.nodelogs.hostlist import MOST_NODES
from bftrainer.report.drawing import palette, plot_counts
from bftrainer.report.metrics import ratio
from bftrainer.spot.checkpointing import CheckpointedTraining, SpotRun
from bftrainer.spot.generation import read_pair
from bftrainer.spot.statistics import Survival
from bftrainer.tasksets.measurements import TrainingProfile, read_training_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
EVENT_COLUMNS = ("ws", "dt", "event", "event-id")
INITIAL_NODES = 32
TIME_ACCOUNTS = ("training_s", "redoing_s", "reconfiguring_s", "stalled_s")
"""Parts of the span; an unfinished iteration counts as if it had finished."""
COST_FIGURES = ("cost", "iterations_per_currency", "samples_per_currency", "value_against_on_demand")
"""Figures of a run that need prices."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per node-hour, in any currency, 1e-9 to 1e9.

    Parameters
    ----------
    spot : float
        Price of a preemptible node; every available node is paid, whether it trains or not.
    on_demand : float, optional
        Price of a node that is never taken; needed for a comparison with as many of them as may be active.

    Raises
    ------
    SettingsError
        If a price is out of range.
    """

    spot: float
    on_demand: float | None = None

    def __post_init__(self) -> None:
        for name, price in (("a price", self.spot), ("an on-demand price", self.on_demand)):
            # Outside this range, work per currency unit may overflow.
            if price is not None and not 1e-9 <= price <= 1e9:
                raise SettingsError(f"Expected {name} from 1e-9 to 1e9, got {price}.")

    def figures(self, run: SpotRun) -> dict[str, Any]:
        """Cost, and work per currency unit, compared with nodes on demand if they have a price.

        Nodes on demand train all the time, in whole pipelines: checkpoints are written during training.
        """
        settings = run.settings
        cost = self.spot * (run.available_node_s / 3600.0)
        value = ratio(run.iterations, cost)
        figures: dict[str, Any] = {"cost": cost, "iterations_per_currency": value}
        if value is not None and settings.profile.samples_per_iteration is not None:
            figures["samples_per_currency"] = value * settings.profile.samples_per_iteration
        if self.on_demand is None:
            return figures
        nodes, span_s = settings.max_world_size, run.log.window_s
        iterations = int(span_s / settings.profile.iteration_time_s(nodes // settings.depth * settings.depth))
        on_demand = ratio(iterations, self.on_demand * nodes * span_s / 3600.0)
        return figures | {"value_against_on_demand": value / on_demand if value is not None and on_demand else None}


def run_figures(run: SpotRun, prices: Prices | None = None) -> dict[str, Any]:
    """Figures of a run, ready for JSON; the four times add up to the span, those of cost need prices."""
    span_s = run.log.window_s
    times_ns = dict.fromkeys(("training", "reconfiguring", "stalled"), 0)
    for phase in run.phases:
        times_ns[phase.condition] += phase.length_ns
    redoing_ns = sum(phase.redoing_ns for phase in run.phases)
    available_node_s = run.available_node_s
    used_node_s = sum(phase.world_size * phase.length_ns for phase in run.phases) / NS_PER_S
    samples = run.settings.profile.samples_per_iteration
    return {
        "span_s": span_s,
        "iterations_done": run.iterations,
        "iterations_saved": run.phases[-1].safe,
        "iterations_executed": sum(phase.iterations for phase in run.phases),
        "iterations_lost": sum(phase.lost for phase in run.phases),
        "iterations_redone": sum(phase.redone for phase in run.phases),
        "iterations_per_hour": ratio(run.iterations * 3600.0, span_s),
        "samples_per_s": None if samples is None else ratio(run.iterations * samples, span_s),
        "training_s": (times_ns["training"] - redoing_ns) / NS_PER_S,
        "redoing_s": redoing_ns / NS_PER_S,
        "reconfiguring_s": times_ns["reconfiguring"] / NS_PER_S,
        "stalled_s": times_ns["stalled"] / NS_PER_S,
        "reconfigurations": sum(phase.condition == "reconfiguring" and phase.is_over for phase in run.phases),
        "reconfiguration_restarts": run.restarts,
        "checkpoints": sum(phase.checkpoints for phase in run.phases),
        "checkpoints_lost": sum(phase.checkpoints_lost for phase in run.phases),
        "preemptions": run.preemptions,
        "active_preemptions": run.active_preemptions,
        "node_hours_held": available_node_s / 3600.0,
        "node_hours_used": used_node_s / 3600.0,
        "mean_nodes": ratio(available_node_s, span_s),
        "mean_world_size": ratio(used_node_s, span_s),
        "largest_world_size": max(phase.world_size for phase in run.phases),
        **dict.fromkeys(COST_FIGURES),
        **({} if prices is None else prices.figures(run)),
    }


def settings_summary(settings: CheckpointedTraining, prices: Prices | None) -> dict[str, Any]:
    """Settings that affect the result, besides the trace."""
    values = asdict(settings)
    profile = values.pop("profile")
    return {**values, **profile, "price": prices and prices.spot, "on_demand_price": prices and prices.on_demand}


def load_profile(path: Path | None) -> TrainingProfile:
    """Read a profile, by default the embedded one."""
    return read_training_profile(sample_path(SAMPLE_SPOT_PROFILE) if path is None else path)


def profile_source(path: Path | None) -> dict[str, str]:
    """Path and checksum of a profile, of the embedded one its name."""
    if path is not None:
        return file_source(path)
    place = sample_path(SAMPLE_SPOT_PROFILE)
    return file_source(place) | {"path": place.name}


def load_log(
    path: Path, additions: Path | None = None, initial_nodes: int | None = None, warn: Callable[[str], None] = print
) -> tuple[NodeLog, dict[str, Any]]:
    """Read the trace to simulate; returns its source too, and tells `warn` of assumptions.

    It is one of any kind except terminations alone, or with `additions` the preemptions that belong to them; such a
    pair begins with `initial_nodes`, 32 by default. An `InputError` if a file cannot be used, or an option does not
    belong to it.
    """
    if additions is not None:
        initial = INITIAL_NODES if initial_nodes is None else initial_nodes
        if not 0 <= initial <= MOST_NODES:
            raise SettingsError(f"Expected 0 <= initial_nodes <= {MOST_NODES:,}, got {initial:,}.")
        return read_pair(path, additions, initial), {"trace": file_source(path), "additions": file_source(additions)}
    if initial_nodes is not None:
        raise ineffective_options({"--initial-nodes": "without --additions the trace says how many nodes there are"})
    log = read_availability(path, warn).log
    if log is None:
        raise SettingsError(f"{path}: Expected additions beside terminations, got terminations alone.")
    return log, {"trace": file_source(path), "additions": None}


def summarise_run(run: SpotRun, prices: Prices | None, sources: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs (`sources`: paths as given, and their SHA-256), settings and figures of a run, ready for JSON."""
    return {
        "schema": SCHEMA,
        "inputs": dict(sources),
        "settings": settings_summary(run.settings, prices),
        "window_start": iso(run.log.start_ns),
        "window_end": iso(run.log.end_ns),
        "nodes": len(run.log.nodes),
        **run_figures(run, prices),
    }


def write_spot(run: SpotRun, summary: Mapping[str, Any], directory: Path) -> None:
    """Write events.csv and summary.json (others: `OSError`)."""
    start_ns = run.log.start_ns
    rows = ((step.world_size, iso(start_ns + step.time_ns, "ms"), step.event, step.number) for step in run.steps())
    with (directory / "events.csv").open("wb") as file:
        write_csv(file, EVENT_COLUMNS, rows)
    write_summary(summary, directory)


def write_summary(summary: Mapping[str, Any], directory: Path) -> None:
    """Write summary.json."""
    text = json.dumps(summary, indent=2, allow_nan=False)
    (directory / "summary.json").write_text(text + "\n", encoding="utf-8")


_TIMES = {
    "training": ("blue", ""),
    "redoing": ("orange", "/////"),
    "reconfiguring": ("green", "....."),
    "stalled": ("gray", "-----"),
}


def run_figure(run: SpotRun, figures: Mapping[str, Any]) -> Figure:
    """Plot available and active nodes (0 while the run reconfigures or stalls) above the shares of time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(4, 1))
    plot_counts(CountTrace.from_log(run.log), above)
    starts_h = np.array([phase.start_ns for phase in run.phases] + [run.phases[-1].end_ns]) / NS_PER_S / 3600.0
    sizes = [phase.world_size for phase in run.phases] + [0]
    above.fill_between(starts_h, sizes, step="post", color=palette()["blue"], label="training")
    above.set(xlabel="time (h)", ylabel="nodes", ylim=(0, None))
    above.margins(x=0)
    above.legend(ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    total = sum(figures[f"{name}_s"] for name in _TIMES) or 1.0
    begin = 0.0
    for name, (shade, hatch) in _TIMES.items():
        share, color = 100.0 * figures[f"{name}_s"] / total, palette()[shade]
        look = {"facecolor": "white" if hatch else color, "edgecolor": color, "hatch": hatch}
        below.barh(0, share, left=begin, label=f"{name} {share:.1f} %", **look)
        begin += share
    below.set(xlabel="share of the time (%)", xlim=(0, 100), yticks=[])
    below.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small")
    return figure


def trace_figure(counts: CountTrace | None, survival: Survival) -> Figure:
    """Plot nodes over time above the share of nodes that stay longer than a time (Kaplan-Meier), on a log axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    if counts is not None:
        plot_counts(counts, above)
    steps = survival.thin(2000)
    if steps.time_s.size:
        below.step(np.append(steps.time_s[0] / 2.0, steps.time_s), np.append(1.0, steps.share), where="post")
    below.set(xlabel="lifetime (s)", ylabel="share of nodes that stay longer", xscale="log", ylim=(0, 1.02))
    return figure
