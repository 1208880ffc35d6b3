"""Parallel work on processes of this machine, by joblib and loky: each has one thread, and ends with its parent."""

from __future__ import annotations

import os
import select
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

from bftrainer.errors import ENDING, BftrainerError

Work = Callable[[Any], Any]
MOST_TRIES = 3
"""Times that an item is tried when its worker ends abruptly."""
_QUIET = "ignore:resource_tracker:UserWarning"


@dataclass(frozen=True, slots=True)
class Lost:
    """Result of an item that could not be computed."""

    reason: str


def usable_processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def as_ready(work: Work, items: Sequence[Any], workers: int) -> Generator[tuple[int, Any], None, None]:
    """Yield the index of each item and its result as they are ready; a process that ends abruptly is replaced.

    The result is a `Lost` for an item whose process ended abruptly each time. `work` is picklable, and its exceptions
    end the iteration; processes share its large arrays, which they cannot write. With one worker, or one item, this
    process computes.
    """
    if workers == 1 or len(items) == 1:
        yield from ((index, work(item)) for index, item in enumerate(items))
        return
    left = dict(enumerate(items))
    while left:
        try:
            with closing(_run_in_pool(work, left, workers)) as results:
                for index, result in results:
                    del left[index]
                    yield index, result
        except BrokenProcessPool:
            # One of the next items ended its process: computed one by one, they show which.
            for index in list(left)[: 2 * workers]:
                yield index, _run_alone(work, index, left.pop(index))


def in_order(work: Work, items: Sequence[Any], workers: int, chunk: int = 1) -> Generator[Any, None, None]:
    """Yield results in the order of the items, whatever the number of processes, until the first one that fails.

    Each process gets `chunk` items at once, as sending takes time. Raises whatever `work` does, and a `BftrainerError`
    if a process ends abruptly on the same items each time.
    """
    chunk = 1 if workers == 1 else chunk
    pieces = [items[at : at + chunk] for at in range(0, len(items), chunk)]
    ready: dict[int, Any] = {}
    due = 0
    with closing(as_ready(partial(_compute_until_error, work), pieces, workers)) as outcomes:
        for index, outcome in outcomes:
            ready[index] = outcome
            while due in ready:
                piece = ready.pop(due)
                if isinstance(piece, Lost):
                    raise BftrainerError(f"A worker process was lost: {piece.reason}.")
                results, error = piece
                yield from results
                if error is not None:
                    raise error
                due += 1


def _compute_until_error(work: Work, items: Sequence[Any]) -> tuple[list[Any], Exception | None]:
    """Return the results until the first error, and the error, which is raised in the order of the items."""
    results: list[Any] = []
    try:
        results.extend(map(work, items))
    except Exception as error:  # whatever `work` raises is raised again where its item is due
        return results, error
    return results, None


def _run_in_pool(work: Work, items: dict[int, Any], workers: int) -> Generator[tuple[int, Any], None, None]:
    """Yield results in any order; no process is left afterwards, and unfinished work is given up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of semaphores that cannot be made, which is an error here
        from joblib import Parallel, delayed, parallel, parallel_config
        from joblib.externals.loky import get_reusable_executor

    if parallel.mp is None:
        raise BftrainerError("Cannot start worker processes: the system gives no semaphores; one worker needs none.")
    compute = delayed(_compute)
    start = {"initializer": _start_worker, "initargs": (os.getpid(),)}
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1, **start):
        pool = Parallel(return_as="generator_unordered", batch_size=1)
    results = None
    try:
        with _quiet_tracker(), interrupts_held():
            results = pool([compute(work, index, item) for index, item in items.items()])
        for result in results:  # noqa: UP028 - `yield from` would close it before warnings are off
            yield result
    finally:
        with interrupts_held(), _quiet_manager(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells of the work that is given up
            if results is not None:
                results.close()
            get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _compute(work: Work, index: int, item: Any) -> tuple[int, Any]:
    return index, work(item)


def _run_alone(work: Work, index: int, item: Any) -> Any:
    """Compute an item in a process of its own, and try again if that ends abruptly."""
    for _ in range(MOST_TRIES - 1):
        with suppress(BrokenProcessPool), closing(_run_in_pool(work, {index: item}, 2)) as results:
            return next(results)[1]
    return Lost(f"its process ended abruptly, {MOST_TRIES} times")


@contextmanager
def _quiet_tracker() -> Iterator[None]:
    """Have the process that releases what a killed one has left do so without a warning, after the prompt is back."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = _QUIET if before is None else f"{before},{_QUIET}"
    try:
        resource_tracker.ensure_running()  # here, as its start ends what `interrupts_held` does
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        os.environ |= {} if before is None else {"PYTHONWARNINGS": before}


@contextmanager
def _quiet_manager() -> Iterator[None]:
    """Do not tell that loky's thread looks for work that it has just given up, after it has ended all processes."""
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
def interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C and its kin to the end of the block; processes that start meanwhile do so until they change that."""
    # A handler that Python has not set cannot be restored.
    before = {number: handler for number in ENDING if (handler := signal.getsignal(number)) is not None}
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets interrupts
        return
    held: list[int] = []
    for number in before:
        signal.signal(number, lambda number, _: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)  # inherited by processes
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in held:
            signal.raise_signal(each)


def _start_worker(parent: int) -> None:
    """Start a worker: the parent handles interrupts; the worker ends when the parent says so or has ended.

    Otherwise workers of a killed parent would finish their items, beside the workers of a resumed run.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def end_with_parent() -> None:
        with suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
