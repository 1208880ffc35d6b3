"""Parallel work on processes of this machine: each has one thread, and ends with the process that started it.

They import once, in a server that forks them, and map one copy of the work and of all arrays that belong to it.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import forkserver, get_context, parent_process, resource_tracker
from multiprocessing.connection import wait as wait_for
from typing import Any

from bftrainer.errors import ENDING, BftrainerError

Work = Callable[[Any], Any]
MOST_TRIES = 3
"""Times that an item is tried when its worker ends abruptly."""
# Workers share the processors, so each computes with one thread.
_ONE_THREAD_EACH = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
) | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
_IMPORTED = ("bftrainer.", "pyarrow.", "solvers.")
_ALIGNED = 64


@dataclass(frozen=True, slots=True)
class Lost:
    """Result of an item that could not be computed."""

    reason: str


def usable_processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def as_ready(work: Work, items: Sequence[Any], workers: int) -> Generator[tuple[int, Any], None, None]:
    """Yield the index of each item and its result as they are ready; a process that ends abruptly is replaced.

    Parameters
    ----------
    work : callable
        A module's function, or a picklable callable; its exceptions end the iteration. Processes share the memory of
        its arrays, which they cannot write.
    items : sequence
    workers : int
        Number of processes. With one worker, or one item, this process computes.

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
    if not left:
        return
    with _mapped(work) as shared:
        while left:
            at_work: dict[int, Future[Any]] = {}
            try:
                yield from _run_in_pool(shared, items, workers, left, at_work)
            except BrokenProcessPool:
                # One of them ended its process: computed one by one, they show which.
                for index in sorted(at_work):
                    yield index, _run_in_own_process(shared, items[index])


@dataclass(frozen=True, slots=True)
class _Mapped:
    """Work in a file that processes map: where it is, and begin and size of the pickle and of each array."""

    file: str
    parts: tuple[tuple[int, int], ...]

    def __call__(self, item: Any) -> Any:
        """Do the work."""
        return _work_of(self)(item)


@contextmanager
def _mapped(work: Work) -> Iterator[_Mapped]:
    """Write work to a file without a name, of which nothing is left whatever ends this process.

    Raises
    ------
    BftrainerError
        If there is no room.
    """
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(work, protocol=5, buffer_callback=arrays.append)
    parts = []
    with ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            for part in (memoryview(head), *(array.raw() for array in arrays)):
                begin = file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)
                parts.append((begin, file.write(part)))
            file.flush()
        except OSError as fault:
            raise BftrainerError(f"No temporary file for what processes share: {fault.strerror}.") from None
        yield _Mapped(f"/proc/{os.getpid()}/fd/{file.fileno()}", tuple(parts))


@lru_cache(maxsize=1)
def _work_of(mapped: _Mapped) -> Work:
    """Map the work in a process."""
    with open(mapped.file, "rb") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    head, *arrays = (memory[begin : begin + size] for begin, size in mapped.parts)
    work: Work = pickle.loads(head, buffers=arrays)
    return work


def in_order(work: Work, items: Sequence[Any], workers: int, chunk: int = 1) -> Generator[Any, None, None]:
    """Yield results in the order of the items, whatever the number of processes.

    Parameters
    ----------
    work, items, workers
        As for `as_ready`.
    chunk : int
        Number of items sent to a process at once, as sending takes time.

    Raises
    ------
    BftrainerError
        If a process ends abruptly on the same items each time.
    Exception
        Whatever `work` raises, for the first item that fails.
    """
    chunk = 1 if workers == 1 else chunk
    pieces = [items[at : at + chunk] for at in range(0, len(items), chunk)]
    ready: dict[int, Any] = {}
    due = 0
    with closing(as_ready(_Piece(work), pieces, workers)) as outcomes:
        for index, outcome in outcomes:
            ready[index] = outcome
            while due in ready:
                yield from _unpack(ready.pop(due))
                due += 1


def _unpack(outcome: Lost | tuple[list[Any], Exception | None]) -> Iterator[Any]:
    """Yield the results of a piece, then raise the error that ended it."""
    if isinstance(outcome, Lost):
        raise BftrainerError(f"A worker process was lost: {outcome.reason}.")
    results, error = outcome
    yield from results
    if error is not None:
        raise error


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work of a process: compute several items, until one fails."""

    work: Work

    def __call__(self, items: Sequence[Any]) -> tuple[list[Any], Exception | None]:
        """Return the results until the first error, and the error."""
        results: list[Any] = []
        try:
            results.extend(map(self.work, items))
        except Exception as error:  # whatever it is, it is raised in the order of the items
            return results, error
        return results, None


def _run_in_pool(
    work: Work, items: Sequence[Any], workers: int, left: deque[int], at_work: dict[int, Future[Any]]
) -> Iterator[tuple[int, Any]]:
    """Yield results of the items in `left`; each is in `at_work` while it is computed."""
    with _pool(min(workers, len(left))) as pool:
        while left or at_work:
            while left and len(at_work) < 2 * workers:
                # Fails if a process has just ended; the item is then still in `left`.
                at_work[left[0]] = _submit(pool, work, items[left[0]])
                left.popleft()
            wait(at_work.values(), return_when=FIRST_COMPLETED)
            for index in [index for index, future in at_work.items() if future.done()]:
                result = at_work[index].result()
                del at_work[index]
                yield index, result


def _run_in_own_process(work: Work, item: Any) -> Any:
    """Compute an item in a process of its own, and try again if that ends abruptly."""
    for _ in range(MOST_TRIES - 1):
        with _pool(1) as pool:
            try:
                return _submit(pool, work, item).result()
            except BrokenProcessPool:
                continue
    return Lost(f"its process ended abruptly, {MOST_TRIES} times")


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes that a server forks, as a fork of a process with threads, such as Arrow's, may hang.

    The server has one thread, and has imported what this process has. No process is left afterwards: unfinished work
    is aborted.
    """
    _start_tracker()
    server: Any = forkserver._forkserver
    # Another one's server has the environment of its own start.
    is_free = server._forkserver_pid is None
    context = get_context("forkserver" if is_free else "spawn")
    if is_free:
        imported = (name for name in sys.modules if name.startswith(_IMPORTED) and ".cli." not in name)
        context.set_forkserver_preload(["__main__", *imported])
    pool = ProcessPoolExecutor(workers, context, _start_worker)
    given_up = True
    try:
        with _environment(_ONE_THREAD_EACH):
            yield pool
        given_up = False
    finally:
        # Without the shutdown Python would wait forever at exit; this holds off a second Ctrl-C until then.
        with interrupts_held():
            if given_up:
                _kill(pool)
            pool.shutdown(cancel_futures=True)
            if is_free:
                server._stop()


def _start_tracker() -> None:
    """Start the resource tracker, which releases semaphores when this process is killed, without its warnings.

    It would warn of leaked semaphores on the terminal, after the prompt is back.
    """
    present = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore:resource_tracker:UserWarning"
    with _environment({"PYTHONWARNINGS": quiet if present is None else f"{present},{quiet}"}):
        resource_tracker.ensure_running()


def _kill(pool: ProcessPoolExecutor) -> None:
    """Kill the processes at any point, as they never leave a partly written file."""
    for process in list(pool._processes.values()):
        process.kill()
    # One may have been sending a result: its reader sees the end only when no process holds the other end.
    pool._result_queue._writer.close()  # type: ignore[attr-defined]


def _submit(pool: ProcessPoolExecutor, work: Work, item: Any) -> Future[Any]:
    """Submit an item; a process that starts for it is registered in the pool before an interrupt is handled."""
    with interrupts_held():
        return pool.submit(work, item)


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


def _start_worker() -> None:
    """Start a worker: the parent handles interrupts; the worker ends when the parent says so or has ended.

    Otherwise workers of a killed parent would finish their items, beside the workers of a resumed run, and then wait
    forever, as each holds the other end of the pipe that the others read.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    end_with_parent(signal.SIGKILL)


def end_with_parent(signum: int) -> None:
    """Have this process get a signal when its parent ends, in whatever way.

    Processes that were not started by `multiprocessing` are unchanged.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_signal_after, args=(parent.sentinel, signum), daemon=True).start()


def _signal_after(sentinel: int, signum: int) -> None:
    wait_for([sentinel])
    os.kill(os.getpid(), signum)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start in the block."""
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
