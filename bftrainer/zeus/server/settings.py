"""Settings of a batch-size server, which it passes to its workers; and files of bearer tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from bftrainer.errors import SettingsError, suggestion
from bftrainer.files.opening import whole_bytes

COMPATIBILITY = ("none", "zeus")
DEFAULT_URL = "sqlite+aiosqlite:///bftrainer-bso.db"

# Names of a server that only this machine can reach.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
TRIAL_TIMEOUT_S = 86_400.0
BODY_BYTES = 1 << 20


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
        File of bearer tokens, one per line; None: anyone who can reach the server may use it.
    max_body_bytes : int
        Longest body of a request.
    hosts : tuple of str
        Names of the server that requests may use; empty: any.
    log_level : str
        Lowest level that is logged.

    Raises
    ------
    SettingsError
        If a setting is out of range.
    """

    database_url: str = DEFAULT_URL
    compat: str = "none"
    trial_timeout_s: float = TRIAL_TIMEOUT_S
    token_file: str | None = None
    max_body_bytes: int = BODY_BYTES
    hosts: tuple[str, ...] = ()
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.compat not in COMPATIBILITY:
            raise SettingsError(
                f"Expected a known compatibility, got {self.compat!r}.{suggestion(self.compat, COMPATIBILITY)}"
            )
        if not (self.trial_timeout_s >= 0 and math.isfinite(self.trial_timeout_s)):
            raise SettingsError(f"Expected a trial timeout of 0 (never) or more seconds, got {self.trial_timeout_s}.")
        if self.max_body_bytes < 1:
            raise SettingsError(f"Expected requests of at least a byte, got {self.max_body_bytes}.")

    @property
    def published(self) -> bool:
        """Whether the server imitates the published one."""
        return self.compat == "zeus"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


SHORTEST_TOKEN = 16


def read_tokens(path: str | None) -> tuple[str, ...]:
    """Read bearer tokens: the lines of a file that are neither empty nor comments (#).

    Raises
    ------
    SettingsError
        If the file cannot be read, has no token, or has a token that is too short or cannot be sent.
    """
    if path is None:
        return ()
    try:
        lines = whole_bytes(Path(path)).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"{path}: cannot be read ({reason}).") from None
    found = []
    for number, line in enumerate(lines, start=1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        # The message leaves out the token, because messages end up in logs.
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise SettingsError(
                f"{path}:{number}: Expected a token of at least {SHORTEST_TOKEN} ASCII characters without spaces."
            )
        found.append(token)
    if not found:
        raise SettingsError(f"{path}: No token found.")
    return tuple(found)
