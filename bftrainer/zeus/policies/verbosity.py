"""What policies and simulations say of single choices: in a log, and on standard output for whoever reads along."""

from __future__ import annotations

import logging

__all__ = ["say"]


def say(logger: logging.Logger, verbose: bool, name: str, message: str, *values: object) -> None:
    """Log a choice at level DEBUG and, with `verbose`, print it as the published code does: `[name] message`.

    Parameters
    ----------
    logger : Logger
        The module's.
    verbose : bool
        Whether it is printed too: whoever sets `verbose` wants to see it, also where no logging is set up.
    name : str
        Who says it.
    message : str
        What is said; `values` are put in as logging does it.
    """
    # Choices are many, and mostly nobody listens.
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(message, *values, stacklevel=2)
    if verbose:
        print(f"[{name}] {message % values}")
