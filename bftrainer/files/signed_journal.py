"""Journals: frames appended to a file while a run goes on, so that it can be resumed from the last whole one.

Frames are signed with a key that only this user can read, each together with the one before: what another user or
program has written is refused before it is looked at.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bftrainer.errors import OutputError, ResumeError
from bftrainer.files.opening import open_file
from bftrainer.files.writing import flush, state_directory

_MAGIC = b"bftrainer journal 1\n"
_HEAD = struct.Struct("<Q32s")  # size of a frame, and its signature
_PIECE = 1 << 20
_KEY_SIZE = 32


class SignedJournal:
    """A journal that is open for more frames; those that it has can be read.

    Parameters
    ----------
    path : Path
        Made for the first frame; what a killed process has written of its last frame is cut off.
    after : bytes
        What the first frame is signed together with, so that no other journal can stand in for this one: what it is
        for, or the `signature` of the journal that it belongs to.

    Raises
    ------
    ResumeError
        If it is no journal of this user's, or another one of theirs.
    OutputError
        If it, or the key to sign it with, cannot be written.
    """

    def __init__(self, path: Path, after: bytes) -> None:
        self.path = path
        self._frames: list[tuple[int, int]] = []
        self.signature = after
        self._last_s = time.monotonic()
        with self._translated():
            self._key = _key()
            if path.exists():
                self._open()
                try:
                    self.signature = self._read()
                except BaseException:  # an interrupt too: nobody has the journal to close it
                    self._file.close()
                    raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise OutputError(f"{fault.filename or self.path}: Cannot keep checkpoints: {fault.strerror}.") from None

    def _open(self) -> None:
        self._file: BinaryIO = self.path.open("a+b", buffering=0)

    def _read(self) -> bytes:
        """Find the whole frames; the last one's signature."""
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        if size and self._file.read(len(_MAGIC)) != _MAGIC[: min(size, len(_MAGIC))]:
            raise ResumeError(f"{self.path}: Expected a journal of this version, found something else.")
        signature, end = self.signature, len(_MAGIC)
        while end + _HEAD.size <= size:
            self._file.seek(end)
            length, found = _HEAD.unpack(self._file.read(_HEAD.size))
            if end + _HEAD.size + length > size:
                break
            if self._signed(signature, length) != found:
                if not self._frames:
                    raise ResumeError(
                        f"{self.path}: Not written by this user on this machine, damaged, or of another run."
                    )
                break
            self._frames.append((end + _HEAD.size, length))
            signature, end = found, end + _HEAD.size + length
        if self._frames:
            self._file.truncate(end)
        else:
            self._file.close()  # opened again with the first frame
        return signature

    def _signed(self, before: bytes, length: int) -> bytes:
        """Signature of what follows in the file."""
        signer = hmac.new(self._key, before, hashlib.sha256)
        while length:
            piece = self._file.read(min(length, _PIECE))
            signer.update(piece)
            length -= len(piece)
        return signer.digest()

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[bytes]:
        for begin, length in self._frames:
            self._file.seek(begin)
            yield self._file.read(length)

    @property
    def age_s(self) -> float:
        """Seconds since the last frame, or since the journal was opened."""
        return time.monotonic() - self._last_s

    def append(self, frame: bytes) -> None:
        """Add a frame; it is on the disk when this returns.

        Raises
        ------
        OutputError
            If there is no room.
        """
        self.signature = hmac.new(self._key, self.signature + frame, hashlib.sha256).digest()
        head = _HEAD.pack(len(frame), self.signature)
        with self._translated():
            if not self._frames:
                self._open()
                self._file.truncate(0)
                head = _MAGIC + head
            begin = self._file.seek(0, os.SEEK_END) + len(head)
            rest = memoryview(head + frame)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
            if not self._frames:
                flush(self.path.parent)
        self._frames.append((begin, len(frame)))
        self._last_s = time.monotonic()

    def close(self) -> None:
        """Close the file, which stays."""
        if self._frames:
            self._file.close()


def _key() -> bytes:
    """Key of this user, made at the first call."""
    place = state_directory()
    path = place / "journal.key"
    key = None
    with suppress(FileNotFoundError), open_file(path) as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise OutputError(f"{path}: Expected a key of this user's that no other may read or write.")
        key = file.read(_KEY_SIZE + 1)
        if len(key) == _KEY_SIZE:
            return key
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = place / f"journal.key.{os.getpid()}"
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(_KEY_SIZE))
        file.flush()
        os.fsync(file.fileno())
    if key is None:
        with suppress(FileExistsError):  # another process was faster
            os.link(made, path)
        made.unlink()
    else:  # cut off, as by a loss of power: nothing that it has signed can be told from what anybody could sign
        made.replace(path)
    flush(place)
    return path.read_bytes()
