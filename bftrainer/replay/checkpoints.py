"""Checkpoints of a run: what its replays have recorded so far, and the state to go on from."""

from __future__ import annotations

import io
import pickle
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bftrainer.errors import ResumeError
from bftrainer.files.signed_journal import SignedJournal, signed
from bftrainer.files.writing import replacing
from bftrainer.model.columns import GrowingTable
from bftrainer.plugins import answering

Frame = tuple[int, Any, Any, str | None, int, float]
"""Number of the replay; records; the state that they lead to, unless more come; why it ended, or None if it goes on;
how many frames there are since the last state; how many seconds the replay has taken, before it was resumed too."""
_KEPT = b"state"
# A run has up to three replays, whose last parts may have to be done again.
_SHARE = 3
_FEWEST_TIMES = 12
"""How many times as long as a checkpoint took it is at least until the next one, however often they are asked for."""


class Checkpoints:
    """The replays of one run, in the order in which it makes them: its own, then those on constant pools.

    Parameters
    ----------
    journal : SignedJournal
        Where they are kept.
    every_s : float
        How many seconds may have to be done again; 0: as few as can be, whatever it takes.

    Attributes
    ----------
    earlier_s : dict of int to float
        By replay: seconds that it took before the run was resumed, as far as its checkpoints reach.
    """

    def __init__(self, journal: SignedJournal, every_s: float) -> None:
        self._journal, self._every_s = journal, every_s / _SHARE
        self._frames: Iterator[Frame] = map(pickle.loads, journal)
        self._next = next(self._frames, None)
        self.earlier_s: dict[int, float] = {}
        self._replay, self._parts, self._since_s = -1, 0, 0.0
        self._begun_s: float | None = None
        self._took_s = 0.0

    def begun(self) -> Iterator[tuple[list[Any], Any, str | None]]:
        """Begin the next replay: its checkpoints so far, each with the records before it, its state, and its end."""
        self._replay += 1
        self._since_s = time.perf_counter()
        records = []
        while self._next is not None and self._next[0] == self._replay:
            _, part, state, reason, parts, took_s = self._next
            records.append(part)
            if state is not None:
                self.earlier_s[self._replay] = took_s
                # A process may have been killed between the parts before.
                yield records[-parts:], state, reason
                records = []
            self._next = next(self._frames, None)

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint, which is begun if so."""
        if self._every_s and self._journal.age_s < max(self._every_s, _FEWEST_TIMES * self._took_s):
            return False
        self._begun_s = time.monotonic()
        return True

    def save(self, records: Any, state: Any, reason: str | None = None) -> None:
        """Add a checkpoint of the present replay, or, without a state, the first part of one.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        self._parts += 1
        took_s = self.earlier_s.get(self._replay, 0.0) + time.perf_counter() - self._since_s
        frame: Frame = self._replay, records, state, reason, self._parts, took_s
        self._parts = self._parts if state is None else 0
        self._journal.append(pickle.dumps(frame, pickle.HIGHEST_PROTOCOL))
        if state is not None and self._begun_s is not None:
            self._took_s, self._begun_s = time.monotonic() - self._begun_s, None


class Snapshots:
    """Checkpoints of objects that change while a replay goes on; what they were made from is found again, not saved.

    Parameters
    ----------
    checkpoints : Checkpoints
    objects : sequence
        Objects with attributes, which are restored in place.
    tables : sequence of GrowingTable
        Tables of theirs, of which only what is new is saved.
    given : dict of str to object
        What the objects refer to and do not change; equal things must be given when they are restored.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        objects: Sequence[object],
        tables: Sequence[GrowingTable[Any]],
        given: dict[str, object],
    ) -> None:
        self._checkpoints, self._objects, self._tables = checkpoints, objects, tables
        shared = {f"object {number}": each for number, each in enumerate(objects)}
        shared |= {f"table {number}": each for number, each in enumerate(tables)}
        self._shared = shared | given

    @property
    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._checkpoints.is_due

    def save(self, position: Any, reason: str | None = None) -> None:
        """Add a checkpoint; `position` is kept with the objects.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        state = pickled_state((position, [vars(each) for each in self._objects]), self._shared)
        self._checkpoints.save([table.taken() for table in self._tables], state, reason)

    def restore(self) -> tuple[Any, str | None]:
        """Bring the objects to their last checkpoint; its position, and why the replay has ended.

        The position is None if there is no checkpoint.

        Raises
        ------
        ResumeError
            If it is one of the compiled core's.
        """
        state, reason = None, None
        for records, state, reason in self._checkpoints.begun():  # noqa: B007 - the last one counts
            if not isinstance(state, bytes):
                raise ResumeError("The run was begun with the compiled core, which is missing here.")
            for parts in records:
                for table, part in zip(self._tables, parts, strict=True):
                    table.extend(part)
        if state is None:
            return None, None
        position, attributes = state_of(state, self._shared)
        for each, found in zip(self._objects, attributes, strict=True):
            vars(each).update(found)
        return position, reason


@dataclass(frozen=True, slots=True)
class KeptState:
    """Objects whose state is kept in a file of its own.

    Parameters
    ----------
    objects : tuple
        Objects with attributes.
    given : dict of str to object
        What they refer to and do not change.
    made_from : object
        What must be the same when the state is read; its representation is compared.
    """

    objects: tuple[object, ...]
    given: dict[str, object]
    made_from: object

    def write(self, path: Path) -> None:
        """Write the file.

        Raises
        ------
        OutputError
            If it cannot be written.
        """
        with replacing(path) as stream:
            state = pickled_state((self._text, [vars(each) for each in self.objects]), self._shared)
            stream.write(signed(state, _KEPT))

    def read(self, path: Path) -> None:
        """Bring the objects to the state in the file.

        Raises
        ------
        ResumeError
            If it is another user's, damaged, or of something else.
        """
        with closing(SignedJournal(path, _KEPT)) as journal:
            content = next(iter(journal), None)
        if content is None:
            raise ResumeError(f"{path}: Expected a saved state, found none.")
        try:
            text, attributes = state_of(content, self._shared)
        except KeyError:
            text, attributes = "", []
        if text != self._text or len(attributes) != len(self.objects):
            raise ResumeError(f"{path}: Expected the state of an allocator of the same settings, tasks and tuner.")
        for each, found in zip(self.objects, attributes, strict=True):
            vars(each).update(found)

    @property
    def _shared(self) -> dict[str, object]:
        return self.given | {f"object {number}": each for number, each in enumerate(self.objects)}

    @property
    def _text(self) -> str:
        """What must be the same, without addresses in memory."""
        return re.sub(r" at 0x[0-9a-f]+", "", repr(self.made_from))


def pickled_state(state: Any, given: dict[str, object]) -> bytes:
    """A state as bytes, with names in the place of what is `given`."""
    stream = io.BytesIO()
    with answering("checkpoint", ResumeError):  # a user's own policy or model may hold what cannot be pickled
        _Pickler(stream, given).dump(state)
    return stream.getvalue()


def state_of(content: bytes, given: dict[str, object]) -> Any:
    """A state from its bytes, which must be signed, or one's own."""
    return _Unpickler(io.BytesIO(content), given).load()


class _Pickler(pickle.Pickler):
    """Writes names in the place of what is given."""

    def __init__(self, stream: IO[bytes], given: dict[str, object]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._names = {id(each): name for name, each in given.items()}

    def persistent_id(self, each: object) -> str | None:
        """Name of what is given; None for what is to be written."""
        return self._names.get(id(each))


class _Unpickler(pickle.Unpickler):
    """Reads what is given for its name."""

    def __init__(self, stream: IO[bytes], given: dict[str, object]) -> None:
        super().__init__(stream)
        self._given = given

    def persistent_load(self, name: str) -> object:
        """What has this name."""
        return self._given[name]
