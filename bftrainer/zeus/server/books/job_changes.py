"""What a change of a job's settings leaves of what is known: which trials still count. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bftrainer.errors import UnusableRequestError, suggestion
from bftrainer.zeus.policies.job import zeus_cost
from bftrainer.zeus.server.messages import JobSpec, LenientJobSpec

# Fields on which all that a trial shows depends: whether it converges, what it takes, what that costs.
_TARGET = ("target_metric", "higher_is_better_metric")
_GPUS = ("gpu_model", "number_of_gpus", "max_power")
CHANGEABLE = tuple(name for name in JobSpec.model_fields if name != "job_id")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trial has shown.

    Parameters
    ----------
    batch_size : int
        Its batch size.
    converged : bool or None
        Whether it reached its target within its bound; None: it is still running.
    time_s, energy_j : float
        Seconds and joules that it took.
    epochs : int or None
        Epochs that it took; None if that is not known.
    """

    batch_size: int
    converged: bool | None
    time_s: float
    energy_j: float
    epochs: int | None


def changed_spec(
    spec: LenientJobSpec, settings: Mapping[str, Any], added: Iterable[int] = (), removed: Iterable[int] = ()
) -> JobSpec:
    """Make a job's settings after a change.

    Parameters
    ----------
    spec : LenientJobSpec
        The job before.
    settings : mapping
        New values of fields.
    added, removed : iterable of int
        Batch sizes to add and to remove; one that is there already, or is not there, changes nothing.

    Raises
    ------
    UnusableRequestError
        If a setting is unknown, or the job would make no sense; its `field` is at fault.
    """
    for name in settings:
        if name not in CHANGEABLE:
            expected = f"Expected a setting that can change, got {name!r}.{suggestion(name, CHANGEABLE)}"
            raise UnusableRequestError(expected, f"settings.{name}")
    values = spec.model_dump() | dict(settings)
    added, removed = set(added), set(removed)
    if added or removed:
        if "batch_sizes" in settings:
            raise UnusableRequestError(
                "Expected all batch sizes, or those to add and to remove, got both.", "settings.batch_sizes"
            )
        values["batch_sizes"] = sorted({*spec.batch_sizes, *added} - removed)
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, fault["loc"]))
        raise UnusableRequestError(fault["msg"], f"settings.{field}" if field else "settings") from None


def still_counts(old: LenientJobSpec, new: LenientJobSpec, trial: Evidence) -> bool:
    """Whether what a trial has shown is still true of a job whose settings change.

    Nothing is once the target or the GPUs change. A trial that converged is still true while its batch size is there,
    and it took no more epochs than are allowed; one that did not is no longer if it might now: with more epochs, under
    a higher bound, or, if it had epochs left, under one of other costs. With fewer epochs it would have cost less.
    Costs are computed anew from time and energy.
    """
    if any(getattr(old, name) != getattr(new, name) for name in (*_TARGET, *_GPUS)):
        return False
    if trial.batch_size not in new.batch_sizes:
        return False
    if trial.converged is None:
        return True
    if not zeus_cost(trial.energy_j, trial.time_s, new.eta_knob, new.max_power) > 0:
        return False
    if trial.converged:
        return new.max_epochs >= old.max_epochs or (trial.epochs is not None and trial.epochs <= new.max_epochs)
    higher = old.beta_knob is not None and (new.beta_knob is None or new.beta_knob > old.beta_knob)
    bounded = old.beta_knob is not None and (trial.epochs is None or trial.epochs < old.max_epochs)
    return new.max_epochs == old.max_epochs and not higher and not (bounded and old.eta_knob != new.eta_knob)


def on_gpus_of(old: LenientJobSpec, new: LenientJobSpec) -> LenientJobSpec:
    """Return a job's settings with another job's GPUs: what it knows can be translated to them."""
    return old.model_copy(update={name: getattr(new, name) for name in _GPUS})
