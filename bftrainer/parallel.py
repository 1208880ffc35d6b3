"""Work on processes of this machine: each computes with one thread, and none outlives the process that started it."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import wait as wait_for
from typing import Any

from bftrainer.errors import BftrainerError

Work = Callable[[Any], Any]
MOST_TRIES = 3
"""Times that an item is computed whose worker ends abruptly."""
# Workers share the processors among themselves: each computes with one thread.
_ONE_THREAD_EACH = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands for the result of an item that could not be computed."""

    reason: str


def usable_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def as_ready(work: Work, items: Sequence[Any], workers: int) -> Generator[tuple[int, Any], None, None]:
    """Yield the index of each item and its result as they come; when a process ends abruptly, others take its place.

    Parameters
    ----------
    work : callable
        A function of a module, or an object that can be pickled; what it raises ends the iteration.
    items : sequence
    workers : int
        Processes. One worker, or one item, is computed in this process.

    Yields
    ------
    index : int
    result : object
        A `Lost` for an item whose process ended abruptly each time.
    """
    if workers == 1 or len(items) == 1:
        yield from ((index, work(item)) for index, item in enumerate(items))
        return
    left = deque(range(len(items)))
    while left:
        at_work: dict[int, Future[Any]] = {}
        try:
            yield from _together(work, items, workers, left, at_work)
        except BrokenProcessPool:
            # One of them ended its process: alone, each answers for itself.
            for index in sorted(at_work):
                yield index, _alone(work, items[index])


def in_order(work: Work, items: Sequence[Any], workers: int, chunk: int = 1) -> Generator[Any, None, None]:
    """Results in the order of the items, whatever the number of processes.

    Parameters
    ----------
    work, items, workers
        As for `as_ready`.
    chunk : int
        Items that a process is handed at once: handing over takes time.

    Raises
    ------
    BftrainerError
        If a process ends abruptly over the same items each time.
    Exception
        What `work` raises, of the first item for which it does.
    """
    chunk = 1 if workers == 1 else chunk
    pieces = [items[at : at + chunk] for at in range(0, len(items), chunk)]
    ready: dict[int, Any] = {}
    due = 0
    with closing(as_ready(_Piece(work), pieces, workers)) as outcomes:
        for index, outcome in outcomes:
            ready[index] = outcome
            while due in ready:
                yield from _opened(ready.pop(due))
                due += 1


def _opened(outcome: Lost | tuple[list[Any], Exception | None]) -> Iterator[Any]:
    """Results of a piece, and then the error that ended it."""
    if isinstance(outcome, Lost):
        raise BftrainerError(f"Expected every worker process to live, but of one {outcome.reason}.")
    results, error = outcome
    yield from results
    if error is not None:
        raise error


@dataclass(frozen=True, slots=True)
class _Piece:
    """What processes are sent: computes several items, until one fails."""

    work: Work

    def __call__(self, items: Sequence[Any]) -> tuple[list[Any], Exception | None]:
        """Results until the first error, and that."""
        results: list[Any] = []
        try:
            results.extend(map(self.work, items))
        except Exception as error:  # whatever it is, it is raised when its turn comes
            return results, error
        return results, None


def _together(
    work: Work, items: Sequence[Any], workers: int, left: deque[int], at_work: dict[int, Future[Any]]
) -> Iterator[tuple[int, Any]]:
    """Results of what is `left`; what is begun moves to `at_work` until it is done."""
    with _pool(min(workers, len(left))) as pool:
        while left or at_work:
            while left and len(at_work) < 2 * workers:
                # Refused where a process has just ended; what is still `left` then is not forgotten.
                at_work[left[0]] = _submit(pool, work, items[left[0]])
                left.popleft()
            wait(at_work.values(), return_when=FIRST_COMPLETED)
            for index in [index for index, future in at_work.items() if future.done()]:
                result = at_work[index].result()
                del at_work[index]
                yield index, result


def _alone(work: Work, item: Any) -> Any:
    """The result of an item in a process of its own, tried again if that ends abruptly."""
    for _ in range(MOST_TRIES - 1):
        with _pool(1) as pool:
            try:
                return _submit(pool, work, item).result()
            except BrokenProcessPool:
                continue
    return Lost(f"its process ended abruptly, {MOST_TRIES} times")


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start afresh: a fork of one that has threads, as Arrow's, may hang.

    None is left afterwards, however it comes to that: what is given up is not computed to its end.
    """
    _track()
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin)
    given_up = True
    try:
        with _environment(_ONE_THREAD_EACH):
            yield pool
        given_up = False
    finally:
        # Without the pool's shutdown Python would wait at its own end, for ever: a second Ctrl-C comes after it.
        with interrupts_held():
            if given_up:
                _kill(pool)
            pool.shutdown(cancel_futures=True)


def _track() -> None:
    """Start what releases a pool's semaphores when this process is killed, and have it do so without a word.

    It would warn that they leaked, on the terminal of whoever killed the command, when that has its prompt again.
    """
    told = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore:resource_tracker:UserWarning"
    with _environment({"PYTHONWARNINGS": quiet if told is None else f"{told},{quiet}"}):
        resource_tracker.ensure_running()


def _kill(pool: ProcessPoolExecutor) -> None:
    """End the processes whatever they are at: nothing that they write is ever there in part."""
    for process in list(pool._processes.values()):
        process.kill()
    # One may have been sending its result: who reads that learns that no more comes only when nobody could send it.
    pool._result_queue._writer.close()  # type: ignore[attr-defined]


def _submit(pool: ProcessPoolExecutor, work: Work, item: Any) -> Future[Any]:
    """Hand out an item; a process that starts for it is known to the pool before an interrupt is heard."""
    with interrupts_held():
        return pool.submit(work, item)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Have a Ctrl-C heard afterwards; processes that start meanwhile hear none, until they say otherwise."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield  # only the main thread hears of interrupts, and what was not set by Python cannot be set again
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def _begin() -> None:
    """An interrupt is the parent's to hear; its processes end when it says so, or is no more.

    Without that, the processes of a parent that was killed would go on with what was handed out, beside those of the
    next one that resumes, and then wait for ever: each holds the other end of what the others wait at.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_parent(signal.SIGKILL)


def end_with_parent(signum: int) -> None:
    """Have this process sent a signal when the one that started it is gone, however that ended.

    Processes that nobody started by `multiprocessing` go on as they are.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_signal_after, args=(parent.sentinel, signum), daemon=True).start()


def _signal_after(sentinel: int, signum: int) -> None:
    wait_for([sentinel])
    os.kill(os.getpid(), signum)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have processes that start meanwhile find these variables."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
