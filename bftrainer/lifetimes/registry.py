"""Look-up of lifetime models by name."""

from __future__ import annotations

from bftrainer.errors import LifetimeError
from bftrainer.model import RowArrays
from bftrainer.model.lifetime import LifetimeModel
from bftrainer.plugins import Plugins

_LIFETIMES = Plugins("bftrainer.lifetimes", "lifetime model", LifetimeError)


def lifetime_names() -> list[str]:
    """Names of the registered models, sorted."""
    return _LIFETIMES.names()


def get_lifetimes(name: str, rows: RowArrays) -> LifetimeModel:
    """Make a new model of this name.

    Parameters
    ----------
    name : str
        An entry point of the group ``bftrainer.lifetimes``, or ``module:callable``: what makes a model, without
        arguments.
    rows : RowArrays
        The log of the replay, which only what is marked ``reads_future = True`` is called with: an oracle.

    Raises
    ------
    LifetimeError
        If there is none of that name, or it does not make a model.
    """
    make = _LIFETIMES.get(name)
    try:
        model = make(rows) if getattr(make, "reads_future", False) else make()
    except Exception as error:  # a model may be third-party code
        raise LifetimeError(f"lifetime model {name}: raised {type(error).__name__}: {error}.") from error
    missing = [each for each in ("observe", "survival") if not callable(getattr(model, each, None))]
    if missing:
        raise LifetimeError(f"lifetime model {name}: Expected a method {missing[0]}, got {type(model).__name__}.")
    return model  # type: ignore[no-any-return]
