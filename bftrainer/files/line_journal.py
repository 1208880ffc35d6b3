"""Journals of lines, appended while something goes on: each is on the disk at once, and a torn end heals.

A line ends with its checksum, so that what a crash or a loss of power has left of the last one is told from what was
written, and damage from a record. Anybody may read them, elsewhere too; what other users could forge is of no
consequence.

A `WorkJournal` has neither: it is of one command, which goes on from it if it was killed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from bftrainer.errors import OutputError, ResumeError
from bftrainer.files.writing import flush

_SHOWN = 80


def sealed(text: str) -> bytes:
    r"""A line that ends with the text's checksum; ends of lines within it become blanks.

    Examples
    --------
    >>> sealed("1788220800.000 + idle n[1-4]")
    b'1788220800.000 + idle n[1-4] fd43640f\n'
    """
    data = text.replace("\n", " ").replace("\r", " ").encode("utf-8", "backslashreplace")
    return b"%s %08x\n" % (data, crc32(data))


def unsealed(line: bytes) -> str | None:
    """The text of a line without its end; None if it is not as it was written.

    Examples
    --------
    >>> unsealed(b"1788220800.000 + idle n[1-4] fd43640f"), unsealed(b"1788220800.000 + idle n[1-3] fd43640f")
    ('1788220800.000 + idle n[1-4]', None)
    """
    data, _, seal = line.rpartition(b" ")
    return data.decode(errors="replace") if seal == b"%08x" % crc32(data) else None


class LineJournal:
    """A journal that is open for more lines. That nobody else writes to it is for the caller to see to.

    Parameters
    ----------
    path : Path
        Made if it does not exist. Lines at its end that are not whole are cut off.
    kind : str
        What the journal is and the version of its form: the beginning of its first line.
    of : str
        What it is about: the rest of that line.

    Attributes
    ----------
    last : str
        Text of the last line.

    Raises
    ------
    ResumeError
        If the file is something else, or about something else; it stays as it is.
    OutputError
        If it cannot be opened or written.
    """

    def __init__(self, path: Path, kind: str, of: str) -> None:
        self.path = path
        with self._translated():
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                self._resume(f"{kind}: {of}", f"{kind}: ")
            except BaseException:  # an interrupt too: nobody has the journal to close it
                os.close(self._file)
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise OutputError(f"{self.path}: Cannot write the journal: {fault.strerror}.") from None

    def _resume(self, title: str, kind: str) -> None:
        """Find the last whole line, or write the first one."""
        first, self._size = sealed(title), os.fstat(self._file).st_size
        start = os.pread(self._file, len(first), 0)
        if start == first:
            with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as held:
                self._size, self.last = _whole(held)
            os.ftruncate(self._file, self._size)
        elif first.startswith(start):  # new, or killed just then
            os.ftruncate(self._file, 0)
            self._size = 0
            self.append(title)
            with suppress(PermissionError):  # a directory that one may write to, and not read
                flush(self.path.parent)
        else:
            found = os.pread(self._file, 1 << 16, 0).partition(b"\n")[0]
            about = (unsealed(found) or "").removeprefix(kind) if found.startswith(kind.encode()) else ""
            shown = f"one of {about[:_SHOWN]}" if about else "something else"
            raise ResumeError(f"{self.path}: Expected a journal of {title.removeprefix(kind)[:_SHOWN]}, got {shown}.")

    def append(self, *texts: str) -> None:
        """Add lines, which are on the disk when this returns; all of them or none.

        Raises
        ------
        OutputError
            If there is no room.
        """
        data = rest = b"".join(map(sealed, texts))
        with self._translated():
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                os.fsync(self._file)
            except BaseException:  # a signal too may come in between
                os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)
        self.last = texts[-1]

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)


class WorkJournal:
    """Lines of a file of one's own. Nobody else may write to it meanwhile; a lock on its directory sees to that.

    Parameters
    ----------
    path : Path
        Made with the first lines.

    Attributes
    ----------
    lines : list of bytes
        Whole lines that were there, without their ends.

    Raises
    ------
    ResumeError
        If it is another user's: its lines decide what is computed.
    """

    def __init__(self, path: Path) -> None:
        self.path, content = path, b""
        if path.exists():
            if path.stat().st_uid != os.geteuid():
                raise ResumeError(f"{path}: Expected a journal of your own, found one of another user.")
            content = path.read_bytes()
        self._size = content.rfind(b"\n") + 1
        self.lines = content[: self._size].splitlines()

    def append(self, lines: Iterable[str]) -> None:
        """Append lines, over one that was cut off; they are on the disk when this returns: `OSError` if that fails."""
        data = "".join(f"{line}\n" for line in lines).encode()
        with self.path.open("ab") as file:
            file.truncate(self._size)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(data)


def _whole(held: mmap.mmap) -> tuple[int, str]:
    """End and text of the last whole line; the first one is known to be."""
    end = len(held)
    while True:
        begin = held.rfind(b"\n", 0, end - 1) + 1
        line = held[begin:end]
        text = unsealed(line[:-1]) if line.endswith(b"\n") else None
        if text is not None:
            return end, text
        end = begin
