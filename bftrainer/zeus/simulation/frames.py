"""The joined tables of a trace as a data frame: the one place here that needs pandas, and only once it is asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bftrainer.zeus.simulation.tables import Table, cell_number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["joined_frame"]


def joined_frame(train: Table, power: Table) -> pd.DataFrame:
    """Each training run with each power limit that was measured at its batch size.

    Parameters
    ----------
    train, power : Table
        Training runs, and measurements of power.

    Returns
    -------
    DataFrame
        One row a run and power limit, in the order of the training runs: all columns of both tables, and
        energy_per_epoch (J).
    """
    import pandas as pd

    frames = [pd.DataFrame({name: _typed(cells) for name, cells in each.columns.items()}) for each in (train, power)]
    joined = frames[0].merge(frames[1], how="inner")
    joined["energy_per_epoch"] = joined["time_per_epoch"] * joined["average_power"]
    return joined


def _typed(cells: list[Any]) -> list[Any]:
    """A column's values: cells of a file are text, and numbers only where all of them are."""
    if not all(isinstance(cell, str) for cell in cells):
        return cells
    numbers = [cell_number(cell) for cell in cells]
    known = [number for number in numbers if number is not None]
    if len(known) < len(cells) or all(map(math.isnan, known)):
        return [cell.strip() for cell in cells]
    return [int(number) for number in known] if all(_is_whole(cell) for cell in cells) else known


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdecimal()
