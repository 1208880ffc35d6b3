"""Who may do what on the server: roles, and the file of tokens and users, which is read again when it has changed.

A line of the file is ``USER ROLE KEY EXPIRES``: the key is ``sha256:`` and the digest of a token, EXPIRES a time such
as ``2027-01-31T00:00:00Z``, or ``never``. A line that is a token itself lets in an administrator. Lines that begin with
``#`` are comments.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from bftrainer.errors import ForbiddenError, OutputError, SettingsError, add_place, suggestion
from bftrainer.files.opening import file_stamp, whole_bytes
from bftrainer.files.writing import replacing


class Role(IntEnum):
    """What a user may do; each role includes those before it."""

    READER = 1  # look at everything
    TRAINER = 2  # run trials, of anybody's jobs
    OWNER = 3  # register jobs, and change or delete them
    ADMIN = 4  # the same with others' jobs


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is let in: a line of a file of tokens and users."""

    name: str | None  # None where nobody is asked for one
    role: Role
    key: str = ""  # sha256: and a token's digest
    expires: float | None = None  # seconds since 1970; None: never
    token: str | None = None  # where it stands in the file itself

    @property
    def id(self) -> str:
        """A short name of the token, which gives nothing away."""
        return self.key.removeprefix("sha256:")[:8]

    @property
    def is_valid(self) -> bool:
        """Whether the token still lets somebody in."""
        return self.expires is None or time.time() < self.expires

    def check_role(self, needed: Role) -> None:
        """Raise `ForbiddenError` if the user's role is less than what is needed."""
        if self.role < needed:
            have, need = self.role.name.lower(), needed.name.lower()
            raise ForbiddenError(f"Expected a user who is {need} or more, got {self.name}, who is {have}.")

    def check_owner(self, job_id: str, owner: str | None) -> None:
        """Raise `ForbiddenError` if a job (of None: nobody's) is not the user's, who is no administrator."""
        self.check_role(Role.OWNER)
        if self.role < Role.ADMIN and self.name != owner:
            whose = "nobody's" if owner is None else f"{owner}'s"
            raise ForbiddenError(f"Expected a job of {self.name}'s, got {job_id}, which is {whose}.")


# Whoever reaches a server that asks nobody who they are, and what is done in this process without a server.
ANYBODY = User(None, Role.ADMIN)
# The name of those whose token stands in the file itself, and of no one who may do less.
PLAIN = "admin"
# As requests name a server that only this machine can reach.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_TOKEN = re.compile("[!-~]{16,}")
_USER = re.compile(
    "([A-Za-z0-9][A-Za-z0-9.@+_-]{0,63})[ \\t]+(reader|trainer|owner|admin)[ \\t]+(sha256:[0-9a-f]{64})[ \\t]+"
    "(never|[0-9-]+T[0-9:.]+(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?))"
)
_LINE = (
    "Expected USER ROLE KEY EXPIRES, or a token of at least 16 ASCII characters without spaces. USER begins with a "
    "letter or digit, has at most 64 of them and of .@+-_, and is admin in that role alone."
)


def token_key(token: bytes) -> str:
    """The key of a token."""
    return f"sha256:{sha256(token).hexdigest()}"


def read_users(path: str | Path) -> list[User]:
    """Read a file of tokens and users; raise `SettingsError` if it cannot be read, or a line means nothing."""
    users = []
    for number, line in enumerate(_read_lines(path), start=1):
        if line and not line.startswith("#"):
            with add_place(f"{path}:{number}", SettingsError):
                users.append(_parse_line(line))
    return users


def _read_lines(path: str | Path) -> list[str]:
    try:
        return [line.strip() for line in whole_bytes(Path(path), SettingsError).decode().splitlines()]
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: Expected text in UTF-8, got something else.") from None


def _parse_line(line: str) -> User:
    """Read a line; the message leaves out what may be a token, because it ends up in logs."""
    if _TOKEN.fullmatch(line):
        return User(PLAIN, Role.ADMIN, token_key(line.encode()), None, line)
    match = _USER.fullmatch(line)
    if match and (match[2] == PLAIN or match[1].lower() != PLAIN):
        with suppress(ValueError):  # a month of 13
            expires = None if match[4] == "never" else datetime.fromisoformat(match[4]).timestamp()
            return User(match[1], Role[match[2].upper()], match[3], expires)
    raise SettingsError(_LINE)


def first_token(path: str | Path) -> str:
    """Read the first token of a file, which a client gives; raise `SettingsError` if there is none."""
    token = next((user.token for user in read_users(path) if user.token is not None), None)
    if token is None:
        raise SettingsError(f"{path}: No token found.")
    return token


class AccessFile:
    """A file of tokens and users, read again at the first request after a change.

    `SettingsError` as long as it cannot be read, and if it lets nobody in.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, ...] | None = None
        self._users: dict[str, User] = {}
        self.find("")
        if not self._users:
            raise SettingsError(f"{path}: No token found.")

    def find(self, key: str) -> User | None:
        """Who a key lets in at this moment; None: nobody."""
        stamp = file_stamp(self.path)
        if stamp is None or stamp != self._stamp:
            self._stamp = None  # until it has been read
            self._users = {user.key: user for user in read_users(self.path)}
            self._stamp = stamp
        user = self._users.get(key)
        return user if user is not None and user.is_valid else None


def add_user(path: Path, name: str, role: Role, days: float | None = None) -> User:
    """Let a user in by a new token, which the result alone holds, for some days or for ever."""
    token = secrets.token_urlsafe(32)
    end = datetime.now(UTC) + timedelta(days=days or 0.0)
    until = "never" if days is None else f"{end:%Y-%m-%dT%H:%M:%SZ}"
    line = f"{name} {role.name.lower()} {token_key(token.encode())} {until}"
    user = replace(_parse_line(line), token=token)
    with _edit_lines(path) as lines:
        lines.append(line)
    return user


def revoke(path: Path, which: str) -> list[User]:
    """Let nobody in any more by the lines of a user, or the one of an id; return them: `SettingsError` without any."""
    with _edit_lines(path) as lines:
        users = read_users(path)
        revoked = [user for user in users if which in (user.id, user.name)]
        if not revoked:
            names = {name for user in users for name in (user.id, user.name or "")}
            raise SettingsError(f"{path}: Unknown user or token {which!r}.{suggestion(which, names)}")
        words = {user.token or user.key for user in revoked}
        lines[:] = [line for line in lines if line.startswith("#") or not words & set(line.split())]
    return revoked


@contextmanager
def _edit_lines(path: Path) -> Iterator[list[str]]:
    """The lines of a file, which replace it as the block leaves them; nobody else changes it meanwhile."""
    with replacing(path, private=True) as stream:
        lines = []
        if path.exists():
            read_users(path)  # a server refuses the whole file for one line
            lines = _read_lines(path)
        yield lines
        stream.write("".join(f"{line}\n" for line in lines).encode())


def own_path() -> Path:
    """Where the file of tokens of this user's own servers is, by the XDG Base Directory Specification."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".local" / "state") / "bftrainer" / "bso-tokens"
    except RuntimeError:
        raise SettingsError("XDG_STATE_HOME: Expected a directory for this user's tokens, who has no home.") from None


def own_file() -> Path:
    """The file of tokens of this user's own servers, which is made with a token if there is none."""
    path = own_path()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{path.parent}: cannot be made ({error.strerror}); give --token-file.") from None
        with _edit_lines(path) as lines:
            if not lines:  # else another process was faster
                lines += [secrets.token_urlsafe(32), "# The token of this user's own servers; keep it to yourself."]
    return path


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
