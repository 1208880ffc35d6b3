"""What the commands about recurring jobs write, and how they end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bftrainer.cli._shared.places import refuse_inputs
from bftrainer.errors import TuningError
from bftrainer.zeus.simulation.campaign import SimulationResult
from bftrainer.zeus.simulation.files import check_suffix, write_results
from bftrainer.zeus.simulation.inputs import ZeusInputs

__all__ = ["check_output", "finish", "finite", "write_output"]


def check_output(output: Path | None, *, force: bool) -> None:
    """Refuse a file that cannot be written, before anything is simulated.

    Raises
    ------
    OutputError
        If its name does not say what to write, or it exists and is not to be replaced.
    """
    from bftrainer.files.writing import refuse_existing

    if output is not None:
        check_suffix(output)
        refuse_inputs(output)
        refuse_existing(output, force=force)


def write_output(output: Path | None, results: Sequence[SimulationResult], inputs: ZeusInputs, **sources: Any) -> None:
    """Write all runs, if that is wanted; `sources` are inputs besides the traces."""
    if output is not None:
        write_results(output, results, inputs.about(**sources))


def finish(results: Sequence[SimulationResult]) -> None:
    """End a command whose results are all printed and written.

    Raises
    ------
    TuningError
        If a simulation ended before its time: why, in one line.
    """
    failures = [result.failure for result in results if result.failure is not None]
    if len(results) == 1 and failures:
        raise TuningError(failures[0])
    if failures:
        raise TuningError(f"{len(failures):,} of {len(results):,} simulations failed; the first: {failures[0]}")


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON can hold them: infinity, a beta that never stops a run, is null."""
    return {name: None if value == math.inf else value for name, value in values.items()}
