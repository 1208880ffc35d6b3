"""Settings of a batch-size server, which it passes to its workers; and files of bearer tokens."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path

from bftrainer.errors import SettingsError, suggestion

COMPATIBILITY = ("none", "zeus")
DEFAULT_URL = "sqlite+aiosqlite:///bftrainer-bso.db"

# What a server that only this machine reaches is called.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
TRIAL_TIMEOUT_S = 86_400.0
BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server.

    Parameters
    ----------
    database_url : str
        Where jobs are kept.
    compat : str
        ``zeus``: answer as the published server does, defects included; ``none``: corrected.
    trial_timeout_s : float
        A trial that nothing was heard of for so long has failed; 0: never.
    token_file : str or None
        File of bearer tokens, one a line; None: whoever reaches the server may use it.
    max_body_bytes : int
        Longest request.
    hosts : tuple of str
        Names that the server is called by; empty: any.

    Raises
    ------
    SettingsError
        If one is out of range.
    """

    database_url: str = DEFAULT_URL
    compat: str = "none"
    trial_timeout_s: float = TRIAL_TIMEOUT_S
    token_file: str | None = None
    max_body_bytes: int = BODY_BYTES
    hosts: tuple[str, ...] = ()

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
        """Whether the published server is imitated."""
        return self.compat == "zeus"

    def to_json(self) -> str:
        """The settings as text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServerSettings:
        """The settings whose `to_json` gave `text`."""
        values = json.loads(text)
        return cls(**values | {"hosts": tuple(values["hosts"])})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


SHORTEST_TOKEN = 16


def read_tokens(path: str | None) -> tuple[str, ...]:
    """Bearer tokens: the lines of a file that are neither empty nor comments (#).

    Raises
    ------
    SettingsError
        If it cannot be read, or has no token, or one that is too short or cannot be sent.
    """
    if path is None:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"{path}: cannot be read ({reason}).") from None
    found = []
    for number, line in enumerate(lines, start=1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        # What it was stays unsaid: messages end up in logs.
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise SettingsError(
                f"{path}:{number}: Expected a token of at least {SHORTEST_TOKEN} ASCII characters without spaces."
            )
        found.append(token)
    if not found:
        raise SettingsError(f"{path}: No token found.")
    return tuple(found)
