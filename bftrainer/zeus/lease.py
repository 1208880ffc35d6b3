"""Lease of a trial, renewed from a thread while its run lives: the place of a dead run is free in minutes."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from bftrainer.errors import ServerRequestError

logger = logging.getLogger(__name__)

# Seconds without a sign of life after which an exploration is handed out again, and renewals in that time.
LEASE_S, RENEWALS = 300.0, 3
# Statuses that say that a trial was ended, or is unknown: there is nothing to renew.
GONE = (400, 404)


class Lease:
    """Renews the lease of a trial until the end of the `with` block.

    A renewal that is not answered is tried again at its next time: what the block does matters more.

    Parameters
    ----------
    renew : callable
        Sends a heartbeat.
    lease_s : float or None
        Length of the lease in seconds; it is renewed three times in that time. None: never, and it is not lost.

    Attributes
    ----------
    lost : bool
        Whether the server has ended the trial meanwhile, so that its result will not count.
    """

    def __init__(self, renew: Callable[[], None], lease_s: float | None = LEASE_S) -> None:
        self.lost = False
        self._renew, self._pause_s = renew, math.inf if lease_s is None else lease_s / RENEWALS
        self._over = threading.Event()
        # A process that ends does not wait for it.
        self._thread = threading.Thread(target=self._keep, name="bso-lease", daemon=True)

    def _keep(self) -> None:
        while not (self.lost or self._over.wait(self._pause_s)):
            try:
                self._renew()
            except ServerRequestError as error:
                self.lost = error.status in GONE
                logger.warning("The trial's lease was not renewed: %s", error)

    def __enter__(self) -> Lease:
        if math.isfinite(self._pause_s):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the renewals, and wait for one that is being sent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
