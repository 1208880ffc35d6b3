"""Pseudonyms for the nodes of a log, the same for the same name and key, so that an administrator can share it."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bftrainer.errors import LogError, OutputError
from bftrainer.model import NodeLog, iso
from bftrainer.model.availability import FORM
from bftrainer.nodelogs.edit import partitions_of
from bftrainer.nodelogs.hostlist import folded

__all__ = ["Pseudonyms", "anonymous_log", "read_or_make_key"]

_KEY_BYTES = 32
_DIGITS = 12
_KEPT = (FORM, "format", "unseen", "min_gap_s", "min_hole_s", "placement")


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Names made of other names by a secret key.

    Parameters
    ----------
    key : bytes
        Whoever has it can tell which pseudonym stands for a name that he guesses; nobody else can.

    References
    ----------
    Krawczyk, Bellare and Canetti, "HMAC: Keyed-Hashing for Message Authentication", RFC 2104.
    """

    key: bytes

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name: the kind's first letter and twelve hexadecimal digits."""
        return f"{kind[0]}{hmac.digest(self.key, f'{kind} {name}'.encode(), 'sha256').hex()[:_DIGITS]}"

    def number(self, kind: str, name: str) -> str:
        """The same as a decimal number of up to twelve digits."""
        return str(int(self.of(kind, name)[1:], 16) % 10**_DIGITS)

    def of_all(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        """Pseudonyms of all names.

        Raises
        ------
        LogError
            If two of them are the same, which another key mends.
        """
        made = {name: self.of(kind, name) for name in names}
        if len(set(made.values())) != len(made):
            raise LogError("Expected a pseudonym for each name, got one for two of them: take another key.")
        return made


def read_or_make_key(path: Path) -> tuple[bytes, bool]:
    """The key in a file, which is made if there is none; and whether it was.

    Raises
    ------
    LogError
        If the file holds something else.
    OutputError
        If it cannot be made.
    """
    if path.exists():
        try:
            key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise LogError(f"{path}: Expected a key of {2 * _KEY_BYTES} hexadecimal digits, got something else.")
        return key, False
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as stream:
            stream.write(f"{key.hex()}\n")
    except OSError as fault:
        raise OutputError(f"{path}: cannot be written ({fault.strerror}).") from None
    return key, True


def anonymous_log(log: NodeLog, names: Pseudonyms, shift_ns: int = 0) -> NodeLog:
    """The log with pseudonyms for its nodes and partitions, sorted by them, and its times shifted.

    Of its provenance only what says nothing of the site is kept: no paths, commands, checksums, or zone.

    Raises
    ------
    LogError
        If two nodes get the same pseudonym.
    """
    made = names.of_all("node", log.nodes)
    order = sorted(range(len(log.nodes)), key=lambda at: made[log.nodes[at]])
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    node = place[log.node]
    by_time = np.lexsort((node, log.time_ns))
    story = {key: log.provenance[key] for key in _KEPT if key in log.provenance}
    story |= {"anonymised": True, "tool": f"bftrainer {version('bftrainer')}"}
    partitions = partitions_of(log)
    if partitions:
        kinds = names.of_all("partition", partitions)
        shown = {kinds[name]: folded(made[node] for node in some) for name, some in partitions.items()}
        story["partitions"] = dict(sorted(shown.items()))
    return NodeLog(
        nodes=tuple(made[log.nodes[at]] for at in order),
        start_ns=log.start_ns + shift_ns,
        end_ns=log.end_ns + shift_ns,
        time_ns=log.time_ns[by_time] + shift_ns,
        node=node[by_time],
        idle=log.idle[by_time],
        provenance=story | {"window": [iso(log.start_ns + shift_ns), iso(log.end_ns + shift_ns)]},
        unchanged_ns=log.unchanged_ns + shift_ns,
    )
