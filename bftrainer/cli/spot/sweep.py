"""`bftrainer spot sweep`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli._shared.sizes import LARGE_DAYS, LARGE_PROCESSES, check_size, large_option, size_option
from bftrainer.cli._shared.stdio import tell
from bftrainer.cli.spot.minute_options import minute_options
from bftrainer.cli.spot.options import FILE, Places, prices_of, settings_of, spot_options
from bftrainer.cli.zeus.options import with_options

__all__ = ["sweep"]

if TYPE_CHECKING:
    _ParamType = click.ParamType[tuple[float, ...]]
else:
    _ParamType = click.ParamType  # generic since click 8.2 only


class _Levels(_ParamType):
    """Numbers separated by commas."""

    name = "LEVELS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Levels of a text with commas between them."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in value.split(","))
        except ValueError:
            self.fail(f"Expected numbers separated by commas, got {value!r}.", param, ctx)


@click.command()
@click.option("--like", type=FILE, help="Fit preemptions and additions to this trace.  [default: 64 spot instances]")
@click.option("--preemption-scale", type=_Levels(), default="0.5,1,2", show_default=True, help="Levels of preemption.")
@click.option("--addition-scale", type=_Levels(), default="1", show_default=True, help="Levels of addition.")
@size_option("--days", usual=LARGE_DAYS, kind=click.FLOAT, default=1.0, show_default=True, help="Length of each trace.")
@size_option("--repeats", default=10, show_default=True, help="Traces of each pair of levels.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same one gives the same results.")
@with_options(*minute_options())
@size_option("--jobs", usual=LARGE_PROCESSES, help="Processes.  [default: one a processor]")
@spot_options
@large_option
def sweep(
    like: Path | None, preemption_scale: tuple[float, ...], addition_scale: tuple[float, ...], days: float,
    repeats: int, seed: int, jobs: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Simulate training over levels of preemption and addition, many times each."""
    from bftrainer.nodelogs.availability import read_availability
    from bftrainer.spot.generation import MinuteOptions, minute_setup
    from bftrainer.spot.sweep import SpotSweep, sweep_spot, write_sweep

    places = Places(options)
    settings, _ = settings_of(options)
    trace = None if like is None else read_availability(like, lambda note: tell(f"Note: {note}"))
    minutes = MinuteOptions(**{key: options.pop(key) for key in MinuteOptions.__dataclass_fields__ if key in options})
    model, bounds = minute_setup(minutes, trace, like)
    model = model.exact() if minutes.exact_mean else model
    made = SpotSweep(model, settings, preemption_scale, addition_scale, days, repeats, seed, bounds, prices_of(options))
    check_size("traces", len(made.levels) * repeats)
    result = sweep_spot(made, jobs)

    def draw() -> Any:
        """The figure, imported with what draws only if it is asked for."""
        from bftrainer.report.drawing import figure_of
        from bftrainer.spot.figures import plot_sweep

        return figure_of(plot_sweep(result.rows))

    click.echo(json.dumps(result.summary(), indent=2) if as_json else "\n".join(_table(result.rows)))
    places.put(partial(write_sweep, result), draw)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per pair of levels: means, with half the width of their 95 % confidence intervals."""
    columns = ("iterations_per_hour", "iterations_lost", "training_s", "redoing_s", "reconfiguring_s", "stalled_s")
    shown = [*columns, *(["iterations_per_currency"] if rows[0]["iterations_per_currency"] is not None else [])]
    titles = [name.removesuffix("_s").replace("_per_", "/").replace("iterations", "iter.") for name in shown]
    lines = [
        f"{'preempt.':>8} {'add.':>6}"
        + "".join(
            f"{title + (' h' if name.endswith('_s') else ''):>20}" for name, title in zip(shown, titles, strict=True)
        )
    ]
    for row in rows:
        cells = (_cell(row, name) for name in shown)
        lines.append(
            f"{row['preemption_scale']:>8g} {row['addition_scale']:>6g}" + "".join(f"{cell:>20}" for cell in cells)
        )
    return lines


def _cell(row: Mapping[str, Any], name: str) -> str:
    unit = 3600.0 if name.endswith("_s") else 1.0
    mean, width = row[name], row[f"{name}_ci95"]
    if mean is None:
        return "-"
    return f"{mean / unit:,.2f}" + ("" if width is None else f" +- {width / unit:,.2f}")
