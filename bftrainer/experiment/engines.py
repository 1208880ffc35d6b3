"""Where the points of a campaign are computed: on processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any, Protocol

from bftrainer.errors import SettingsError, SweepError, suggestion
from bftrainer.traces.documents import toml_file

__all__ = ["DaskEngine", "Engine", "LocalEngine", "Lost"]

Work = Callable[[Any], Any]
MOST_TRIES = 3
"""Times that an item is computed whose worker ends abruptly."""
CONNECT_S = 10.0
# Workers share the processors among themselves: each computes with one thread.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands for the result of an item that could not be computed."""

    reason: str


class Engine(Protocol):
    """Computes a function of many items."""

    def run(self, work: Work, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the index of each item and its result, or a `Lost`, in whatever order they come.

        `work` is a function of a module, and raises nothing.
        """
        ...


class LocalEngine:
    """Processes of this machine.

    Parameters
    ----------
    workers : int, optional
        By default as many as there are processors to be used. One computes in this process.

    Raises
    ------
    SettingsError
        If there is none.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        if self.workers < 1:
            raise SettingsError(f"Expected at least one worker, got {self.workers}.")

    def run(self, work: Work, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Results in the order in which they are ready; when a process ends abruptly, others start in its place."""
        if self.workers == 1 or len(items) == 1:
            yield from ((index, work(item)) for index, item in enumerate(items))
            return
        left = deque(range(len(items)))
        while left:
            at_work: dict[int, Future[Any]] = {}
            try:
                yield from self._together(work, items, left, at_work)
            except BrokenProcessPool:
                # One of them ended its process: alone, each answers for itself.
                for index in sorted(at_work):
                    yield index, _alone(work, items[index])

    def _together(
        self, work: Work, items: Sequence[Any], left: deque[int], at_work: dict[int, Future[Any]]
    ) -> Iterator[tuple[int, Any]]:
        """Results of what is `left`; what is begun moves to `at_work` until it is done."""
        with _one_thread_each(), _pool(min(self.workers, len(left))) as pool:
            while left or at_work:
                while left and len(at_work) < 2 * self.workers:
                    # Refused where a process has just ended; what is still `left` then is not forgotten.
                    at_work[left[0]] = pool.submit(work, items[left[0]])
                    left.popleft()
                wait(at_work.values(), return_when=FIRST_COMPLETED)
                for index in [index for index, future in at_work.items() if future.done()]:
                    result = at_work[index].result()
                    del at_work[index]
                    yield index, result


def _alone(work: Work, item: Any) -> Any:
    """The result of an item in a process of its own, tried again if that ends abruptly."""
    for _ in range(MOST_TRIES - 1):
        with _one_thread_each(), _pool(1) as pool:
            try:
                return pool.submit(work, item).result()
            except BrokenProcessPool:
                continue
    return Lost(f"its process ended abruptly, {MOST_TRIES} times")


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start afresh: a fork of one that has threads, as Arrow's, may hang."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _follow_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """An interrupt is the parent's to hear; its processes end when it says so, or is no more.

    Without that, the processes of a parent that was killed would go on with what was handed out, beside those of the
    next one that resumes, and then wait for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have processes that start meanwhile use one thread for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class DaskEngine:
    """A Dask cluster: one that runs already, or one of a batch system's jobs.

    Parameters
    ----------
    scheduler : str, optional
        Address of a scheduler.
    jobqueue : Path, optional
        TOML file: ``system``, a class of dask-jobqueue in lower case (slurm, pbs, lsf, ...), ``jobs``, how many, and
        what that class takes.

    Raises
    ------
    SettingsError
        If neither or both are given, or Dask is not installed.
    """

    def __init__(self, scheduler: str | None = None, jobqueue: Path | None = None) -> None:
        if (scheduler is None) == (jobqueue is None):
            raise SettingsError("Expected either --scheduler or --dask-jobqueue for the engine dask.")
        missing = [
            name for name in ("distributed", *(["dask_jobqueue"] if jobqueue else [])) if find_spec(name) is None
        ]
        if missing:
            raise SettingsError(f"Expected {missing[0]}, found none; pip install 'bftrainer[dask]' brings it.")
        self._scheduler, self._jobqueue = scheduler, jobqueue

    def run(self, work: Work, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Results in the order in which they are ready; Dask repeats what a lost worker was at.

        Raises
        ------
        SweepError
            If the scheduler cannot be reached, or the batch system takes no jobs.
        """
        from distributed import as_completed

        with self._client() as client:
            futures = client.map(work, items, pure=False, retries=MOST_TRIES - 1)
            places = {future.key: index for index, future in enumerate(futures)}
            for future in as_completed(futures, loop=client.loop):
                error = future.exception()
                lost = None if error is None else Lost(_said(error))
                yield places[future.key], future.result() if lost is None else lost
                future.release()

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from distributed import Client

        with self._cluster() as address:
            try:
                if isinstance(address, str):
                    # A client that reaches nobody takes another 20 s, and a traceback, to be forgotten.
                    asyncio.run(_reach(address))
                client = Client(address, timeout=CONNECT_S, set_as_default=False)
            except (OSError, ValueError, MemoryError, EOFError) as error:
                # What some other server says is taken for lengths of messages that no memory holds.
                raise SweepError(
                    f"{address}: Expected a Dask scheduler within {CONNECT_S:.0f} s, got: {_said(error)}"
                ) from None
            try:
                yield client
            finally:
                client.close()

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        """The address of the scheduler, or a cluster of jobs that ends with the campaign."""
        if self._jobqueue is None:
            yield self._scheduler
            return
        kind, jobs, options = _jobqueue(self._jobqueue)
        try:
            cluster = kind(**options)
        except (TypeError, ValueError, OSError) as error:
            raise SweepError(f"{self._jobqueue}: {_said(error)}") from None
        try:
            cluster.scale(jobs=jobs)
            yield cluster
        finally:
            cluster.close()


def _said(error: BaseException) -> str:
    """The first line of what a library says, which may be nothing."""
    return str(error).partition("\n")[0] or type(error).__name__


async def _reach(address: str) -> None:
    from distributed.comm import connect

    comm = await connect(address, timeout=CONNECT_S)
    await comm.close()


def _jobqueue(path: Path) -> tuple[Callable[..., Any], int, dict[str, Any]]:
    """The class of a batch system's clusters, how many jobs, and what the class takes."""
    import dask_jobqueue

    kinds = {name.removesuffix("Cluster").lower(): name for name in dir(dask_jobqueue) if name.endswith("Cluster")}
    table, _ = toml_file(path, SweepError)
    system, jobs = str(table.pop("system", "")), table.pop("jobs", None)
    if system not in kinds:
        raise SweepError(
            f"{path}: Expected the system of a batch scheduler, got {system!r}.{suggestion(system, kinds)}"
        )
    if not isinstance(jobs, int) or jobs < 1:
        raise SweepError(f"{path}: Expected jobs, how many to submit, got {jobs!r}.")
    return getattr(dask_jobqueue, kinds[system]), jobs, table
