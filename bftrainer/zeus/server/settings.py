"""Settings of a batch-size server, which it passes to its workers."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network

from bftrainer.errors import SettingsError, suggestion

# Environment variable that holds the workers' settings.
ENVIRONMENT = "BFTRAINER_BSO_SETTINGS"
# Key in a request's state of the number of the user who sends it through a Unix socket.
PEER_UID = "peer_uid"
COMPATIBILITY = ("none", "zeus")
DEFAULT_URL = "sqlite+aiosqlite:///bftrainer-bso.db"

# Names of a server that only this machine can reach.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
TRIAL_TIMEOUT_S = 86_400.0
BODY_BYTES = 1 << 20
MOST_CONNECTIONS, MOST_OF_A_PEER = 1_000, 250


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
        File of tokens and users (`access`). Without it and without a socket, whoever reaches the server may use it.
    socket : str or None
        Unix socket to listen at; it lets in this user, and those whose numbers are in the file.
    tls_cert, tls_key : str or None
        Files with the certificate and its key.
    max_body_bytes : int
        Longest body of a request.
    hosts : tuple of str
        Names of the server that requests may use; empty: any.
    proxies : tuple of str
        Addresses of proxies that say for whom they ask (X-Forwarded-For).
    most_connections, most_of_a_peer : int
        Connections that a worker has at a time, in all and of one address.
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
    socket: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    max_body_bytes: int = BODY_BYTES
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    most_connections: int = MOST_CONNECTIONS
    most_of_a_peer: int = MOST_OF_A_PEER
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
        if min(self.most_connections, self.most_of_a_peer) < 1:
            raise SettingsError("Expected at least one connection, in all and of a peer.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("Expected a certificate and its key, got one of them.")

    @property
    def published(self) -> bool:
        """Whether the server imitates the published one."""
        return self.compat == "zeus"


def settings_from_environment() -> ServerSettings:
    """Settings of a worker, which `serve` has put into the environment."""
    from pydantic import TypeAdapter

    return TypeAdapter(ServerSettings).validate_json(os.environ[ENVIRONMENT])


def network_of(address: str) -> str:
    """What one peer has: an address of IPv4, or all that IPv6 gives to one network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((int(found) >> 64 << 64, 64)))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
