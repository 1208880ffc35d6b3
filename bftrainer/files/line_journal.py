"""Journals of lines, appended while something goes on: each is on the disk at once, and a torn end heals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from bftrainer.errors import OutputError
from bftrainer.files.opening import most_bytes, open_file
from bftrainer.files.writing import flush


class LineJournal:
    """Lines of a file that nobody else writes to; a lock on its directory sees to that.

    Lines at the end that are not `is_whole` are cut off, as is one without its end. The first lines make the file.
    """

    def __init__(self, path: Path, is_whole: Callable[[bytes], bool] = lambda _: True) -> None:
        self.path, content = path, b""
        if path.exists():
            with self._translate_errors("read"), open_file(path) as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    raise OutputError(f"{path}: Expected a journal of your own, found one of another user.")
                if os.fstat(file.fileno()).st_size > most_bytes():
                    raise OutputError(f"{path}: Expected a journal, got a file that is too large for one.")
                content = file.read()
        lines = content.split(b"\n")[:-1]
        while lines and not is_whole(lines[-1]):
            lines.pop()
        self._size = sum(map(len, lines)) + len(lines)

    def read(self) -> list[bytes]:
        """Read the whole lines, without their ends."""
        if not self._size:
            return []
        with self._translate_errors("read"), open_file(self.path) as file:
            return file.read(self._size - 1).split(b"\n")

    def append(self, lines: Iterable[str | bytes]) -> None:
        """Append lines, all of them or none, over one that was cut off; they are on the disk when this returns."""
        data = b"".join(b"%s\n" % (line.encode() if isinstance(line, str) else line) for line in lines)
        with self._translate_errors("write"), self.path.open("ab", buffering=0) as file:
            file.truncate(self._size)
            unwritten = memoryview(data)
            try:
                while unwritten:
                    unwritten = unwritten[file.write(unwritten) :]
                os.fsync(file.fileno())
            except BaseException:  # a signal too may come in between
                file.truncate(self._size)
                raise
        if not self._size:
            with suppress(PermissionError):  # a directory that one may write to, and not read
                flush(self.path.parent)
        self._size += len(data)

    @contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise OutputError(f"{self.path}: Cannot {verb} the journal: {fault.strerror}.") from None


def seal_line(text: str) -> bytes:
    """Add the text's checksum, by which damage is told from a record; ends of lines within it become blanks."""
    data = text.replace("\n", " ").replace("\r", " ").encode("utf-8", "backslashreplace")
    return b"%s %08x" % (data, crc32(data))


def unseal_line(line: bytes) -> str | None:
    """The text of a line without its end; None if it is not as it was written.

    Examples
    --------
    >>> unseal_line(b"1788220800.000 + idle n[1-4] fd43640f"), unseal_line(b"1788220800.000 + idle n[1-3] fd43640f")
    ('1788220800.000 + idle n[1-4]', None)
    """
    data, _, seal = line.rpartition(b" ")
    return data.decode(errors="replace") if seal == b"%08x" % crc32(data) else None
