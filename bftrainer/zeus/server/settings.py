"""Settings of a batch-size server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import ip_address

from bftrainer.errors import SettingsError, suggestion

COMPATIBILITY = ("none", "zeus")
DEFAULT_URL = "sqlite:///bftrainer-bso.db"
# Names of a server that only this machine can reach.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server.

    Parameters
    ----------
    database_url : str
        URL of the database for jobs.
    compat : str
        ``zeus``: answer exactly like the published server, defects included; ``none``: with corrections.
    trial_timeout_s : float
        Time without a report after which a trial counts as failed; 0: never.
    token_file : str or None
        File of tokens and users (`access`). Without it, whoever reaches the server may use it.
    hosts : tuple of str
        Names of the server that requests may use; empty: any.

    Raises
    ------
    SettingsError
        If a setting is out of range.
    """

    database_url: str = DEFAULT_URL
    compat: str = "none"
    trial_timeout_s: float = 86_400.0
    token_file: str | None = None
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.compat not in COMPATIBILITY:
            raise SettingsError(
                f"Expected a known compatibility, got {self.compat!r}.{suggestion(self.compat, COMPATIBILITY)}"
            )
        if not (self.trial_timeout_s >= 0 and math.isfinite(self.trial_timeout_s)):
            raise SettingsError(f"Expected a trial timeout of 0 (never) or more seconds, got {self.trial_timeout_s}.")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
