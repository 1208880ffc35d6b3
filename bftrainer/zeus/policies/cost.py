"""The cost that tuning minimises: energy against time."""

from __future__ import annotations

import math

from bftrainer.errors import TuningInputError

__all__ = ["check_knobs", "zeus_cost"]


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: float) -> float:
    """Energy, and the energy that the time would take at full power, weighed against each other.

    Parameters
    ----------
    energy : float
        Energy of a run in joules.
    time : float
        Its duration in seconds.
    eta_knob : float
        Weight of energy, 0 (only time counts) to 1 (only energy counts).
    max_power : float
        Power limit in watts that time is converted with.

    Returns
    -------
    float
        ``eta E + (1 - eta) P_max T``, in joules.

    References
    ----------
    You et al., "Zeus", NSDI '23, equation 2.
    """
    return eta_knob * energy + (1.0 - eta_knob) * max_power * time


def check_knobs(eta_knob: float, beta_knob: float) -> None:
    """Refuse knobs that mean nothing.

    Raises
    ------
    TuningInputError
        If `eta_knob` is outside [0, 1], or `beta_knob` is not above 0; NaN is neither.
    """
    if not 0.0 <= eta_knob <= 1.0:
        raise TuningInputError(f"Expected eta from 0 (time) to 1 (energy), got {eta_knob}.")
    if not beta_knob > 0.0 or math.isnan(beta_knob):
        raise TuningInputError(f"Expected beta above 0 (inf: never stop early), got {beta_knob}.")
