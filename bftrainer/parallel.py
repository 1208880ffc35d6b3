"""Parallel work on processes of this machine, by joblib and loky: each has one thread, and ends with its parent."""

from __future__ import annotations

import os
import select
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any, NamedTuple

from bftrainer.errors import ENDING, BftrainerError, SettingsError

Work = Callable[[Any], Any]
MOST_TRIES = 3
"""Times that an item is tried when its worker ends abruptly."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Result of an item that could not be computed: why, and what the work raised, if it did."""

    reason: str
    error: Exception | None = None


class Outcome(NamedTuple):
    """Number of an item, from 0, and its result, or a `Lost`."""

    number: int
    result: Any


def usable_processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def count_workers(workers: int | None) -> int:
    """So many workers, by default one per usable processor: a `SettingsError` if that is none."""
    number = usable_processors() if workers is None else workers
    if number < 1:
        raise SettingsError(f"Expected at least one worker, got {number}.")
    return number


def map_as_ready(
    work: Work, items: Sequence[Any], workers: int, chunk: int = 1, *, ordered: bool = False
) -> Generator[Outcome, None, None]:
    """Yield what becomes of the items, as they are ready or `ordered`; lost processes are replaced.

    The result is a `Lost` for an item that `work` raised an exception for, or whose process ended abruptly each time.
    `work` is picklable; processes share its large arrays, which they cannot write, and get `chunk` items at once, as
    sending takes time. With one worker, or one chunk, this process computes.
    """
    if workers == 1 or len(items) <= chunk:
        yield from (_compute(work, index, item) for index, item in enumerate(items))
        return
    pending, losses, suspects = dict(enumerate(items)), Counter[int](), 0
    while pending:
        pool = {"n_jobs": workers, "batch_size": chunk, "return_as": "generator" if ordered else "generator_unordered"}
        if suspects:
            pool |= {"batch_size": 1, "pre_dispatch": 1}
        try:
            with closing(_run_in_pool(work, list(pending.items())[: suspects or None], pool)) as results:
                for outcome in results:
                    del pending[outcome.number]
                    yield outcome
            suspects = 0
        except BrokenProcessPool:
            # One of the next items ended its process: computed one by one, the first that is pending then did so.
            if suspects:
                losses[index := next(iter(pending))] += 1
                if losses[index] == MOST_TRIES - 1:
                    del pending[index]
                    yield Outcome(index, Lost(f"its process ended abruptly, {MOST_TRIES} times"))
            suspects = 2 * workers * chunk


def map_in_order(work: Work, items: Sequence[Any], workers: int | None, chunk: int = 1) -> Generator[Any, None, None]:
    """Yield results in the order of the items, whatever the number of processes, until the first one that fails.

    Raises whatever `work` does, and a `BftrainerError` if a process ends abruptly on the same item each time.
    """
    with closing(map_as_ready(work, items, count_workers(workers), chunk, ordered=True)) as outcomes:
        for _, outcome in outcomes:
            if isinstance(outcome, Lost):
                raise outcome.error or BftrainerError(f"A worker process was lost: {outcome.reason}.")
            yield outcome


def _run_in_pool(
    work: Work, items: Sequence[tuple[int, Any]], pool: Mapping[str, Any]
) -> Generator[Outcome, None, None]:
    """Yield results; no process is left afterwards, and unfinished work is given up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of semaphores that cannot be made, which is an error here
        from joblib import Parallel, delayed, parallel, parallel_config
        from joblib.externals.loky import get_reusable_executor

    if parallel.mp is None:
        raise BftrainerError("Cannot start worker processes: the system gives no semaphores; one worker needs none.")
    compute, results = delayed(_compute), None
    try:
        with (
            parallel_config("loky", inner_max_num_threads=1, initializer=_start_worker, initargs=(os.getpid(),)),
            _quiet_tracker(),
            defer_interrupts(),
        ):
            results = Parallel(**pool)(compute(work, index, item) for index, item in items)
        for result in results:  # noqa: UP028 - `yield from` would close it before warnings are off
            yield result
    finally:
        with defer_interrupts(), _quiet_manager(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells of the work that is given up
            if results is not None:
                results.close()
            get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _compute(work: Work, index: int, item: Any) -> Outcome:
    """The result of an item, or why there is none."""
    try:
        return Outcome(index, work(item))
    except Exception as error:  # whatever `work` raises is told by the one who reads the results
        return Outcome(index, Lost(str(error), error))


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Have the process that releases what a killed one has left do so without a warning, after the prompt is back."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        resource_tracker.ensure_running()  # here, as its start unblocks what `defer_interrupts` blocks
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        os.environ |= {} if before is None else {"PYTHONWARNINGS": before}


@contextmanager
def _quiet_manager() -> Iterator[None]:
    """Keep quiet that loky's thread, up to joblib 1.6, looks for work that it has just given up."""
    usual = threading.excepthook

    def tell(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not KeyError or args.thread is None or args.thread.name != "ExecutorManagerThread":
            usual(args)

    threading.excepthook = tell
    try:
        yield
    finally:
        threading.excepthook = usual


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C and its kin to the end of the block; processes that start meanwhile do so until they change that."""
    # A handler that Python has not set cannot be restored.
    before = {number: handler for number in ENDING if (handler := signal.getsignal(number)) is not None}
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets interrupts
        return
    received: list[int] = []
    for number in before:
        signal.signal(number, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)  # inherited by processes
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for deferred in received:
            signal.raise_signal(deferred)


def _start_worker(parent: int) -> None:
    """Start a worker, which leaves interrupts to its parent, and ends when that says so, or has ended itself."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def end_with_parent() -> None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
