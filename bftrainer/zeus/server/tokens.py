"""Bearer tokens, in a file that server and clients read."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import SettingsError

__all__ = ["SHORTEST_TOKEN", "read_tokens"]

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
        raise SettingsError(f"{path}: Expected a file of tokens, got: {reason}.") from None
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
        raise SettingsError(f"{path}: Expected at least one token, found none.")
    return tuple(found)
