"""Find this user's own server on this machine, and the token to give it, without being told."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

from bftrainer.files.writing import state_directory
from bftrainer.zeus.server.access import first_token, own_path
from bftrainer.zeus.server.settings import is_loopback

# Variables that say otherwise.
ADDRESS, TOKEN_FILE = "BFTRAINER_BSO_SERVER", "BFTRAINER_BSO_TOKEN_FILE"
SOCKET_SCHEME = "unix:"
USUAL_ADDRESS = "http://127.0.0.1:8000"
_PORTS = {"http": 80, "https": 443}
_LISTENING = "0A"  # of include/net/tcp_states.h in Linux


def usual_socket() -> Path:
    """Where a server listens that is to have a Unix socket: in a directory that is this user's alone."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    return runtime / "bftrainer-bso.sock" if runtime.is_absolute() else state_directory() / "bso.sock"


def find_address() -> str:
    """Address of the server to ask: what the environment says, else the socket, where there is one, else the port."""
    if address := os.environ.get(ADDRESS):
        return address
    place = usual_socket()
    try:
        is_own = stat.S_ISSOCK((found := place.stat()).st_mode) and found.st_uid == os.geteuid()
    except OSError:
        is_own = False
    return f"{SOCKET_SCHEME}{place}" if is_own else USUAL_ADDRESS


def find_token(address: str) -> str | None:
    """Token for a server: that of the environment's file, else, for a server of this user's own, that of its file.

    Raises
    ------
    SettingsError
        If the file cannot be read, or has no token.
    """
    if path := os.environ.get(TOKEN_FILE):
        return first_token(path)
    parts = urlsplit(address)
    own = own_path()
    if (
        not is_loopback(parts.hostname or "")
        or not own.exists()
        or not _is_own(parts.port or _PORTS.get(parts.scheme, 0))
    ):
        return None
    return first_token(own)


def _is_own(port: int) -> bool:
    """Whether nobody but this user listens at a port of this machine: others would be given the token."""
    users = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, user, *_ in map(str.split, rows):
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                users.add(int(user))
    return users == {os.geteuid()}
