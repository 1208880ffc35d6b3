"""Cases in forked workers of a process that has imported everything, and the watchdog that ends those that hang."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import uvicorn

from tests.fuzzing.cases import MOST_BYTES, SLOWEST_S, Scene
from tests.fuzzing.families import drawn, prepare

_POLL_S = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Worker:
    """A forked process that plays one case after the other."""

    process: int
    pipe: Connection
    root: Path
    seed: int
    only: str | None
    number: int = -1
    begun_s: float = 0.0
    used_s: float = 0.0
    moved_s: float = 0.0
    known_s: float = 0.0

    def give(self, number: int) -> None:
        """Have it play a case."""
        self.number, self.begun_s = number, time.monotonic()
        self.moved_s, self.used_s = self.begun_s, _cpu_s(self.process)[0]
        self.pipe.send(number)

    def failing(self) -> str | None:
        """Why it must be ended, if it must: on a busy machine only time that it uses, or waits for nothing, counts."""
        now_s, (cpu_s, state) = time.monotonic(), _cpu_s(self.process)
        if cpu_s != self.known_s or state in "RD":
            self.moved_s, self.known_s = now_s, cpu_s
        # Points of a sweep whose files were lost replay the sample instead, each in some seconds.
        is_slow = cpu_s - self.used_s > SLOWEST_S and (
            drawn(self.seed, self.number, self.only).family != "sweeps" or cpu_s - self.used_s > 3 * SLOWEST_S
        )
        if is_slow or now_s - self.moved_s > 3 * SLOWEST_S:
            return f"took more than {SLOWEST_S:.0f} s"
        if now_s - self.begun_s > 60 * SLOWEST_S:  # it wakes up again and again, and does nothing
            return "did not end"
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return f"took more than {MOST_BYTES >> 20} MiB" if pages * _PAGE > MOST_BYTES else None

    def end(self) -> int:
        """End it and clean up; how it ended."""
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        shutil.rmtree(self.root, ignore_errors=True)
        return os.waitstatus_to_exitcode(status)


def _cpu_s(process: int) -> tuple[float, str]:
    """Processor time of a process, and its state: R runs or would, D waits for a disk, S sleeps."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0]


def import_everything() -> None:
    """Import all modules of ours, and with them what they use, so that workers need not."""
    import bftrainer
    import solvers

    for package in (bftrainer, solvers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in ("font_manager", "pyplot", "backends.backend_svg", "backends.backend_agg"):
        importlib.import_module(f"matplotlib.{name}")
    prepare()
    gc.collect()
    gc.freeze()


def start(seed: int, only: str | None) -> Worker:
    """Fork a worker."""
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    ours, theirs = Pipe()
    process = os.fork()
    if process:
        theirs.close()
        os.setpgid(process, process)
        return Worker(process, ours, root, seed, only)
    status = 1
    try:
        ours.close()
        os.setpgid(0, 0)
        _serve(theirs, root, seed, only)
        status = 0
    finally:
        os._exit(status)


def _serve(pipe: Connection, root: Path, seed: int, only: str | None) -> None:
    streams = _alone(root)
    scene = Scene(root / "scene")
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        try:
            status, wrong, said = scene.play(drawn(seed, number, only), streams)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > MOST_BYTES:
                wrong.append(f"took more than {MOST_BYTES >> 20} MiB")
            pipe.send((number, status, wrong, said))
        except BaseException as error:  # the case cannot be played: a fault of ours
            pipe.send((number, -1, [f"cannot be played: {error!r} {traceback.format_exc()[-400:]!r}"], ""))


def _alone(root: Path) -> tuple[Path, Path]:
    """Let this process write to two files and its folder, reach no network, and take limited memory; the two files."""
    (root / "scene").mkdir()
    streams = root / "out", root / "err"
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    sys.stdout = os.fdopen(1, "w", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False, buffering=1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * MOST_BYTES,) * 2)  # mapped files are more than what is used
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind in (RuntimeWarning, UserWarning, FutureWarning):
        warnings.simplefilter("always", kind)

    def refused(*_: object, **__: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    look_up = socket.getaddrinfo

    def numeric(host: Any, port: Any, *some: Any, **named: Any) -> Any:
        return look_up(host, port, *some[:3], **named | {"flags": socket.AI_NUMERICHOST})

    uvicorn.run = lambda *_, **__: None
    socket.socket.connect = refused  # type: ignore[assignment, method-assign]
    socket.getaddrinfo = numeric
    tempfile.tempdir = None
    return streams


@dataclass(frozen=True)
class Finding:
    """A case and what was wrong with it."""

    number: int
    wrong: list[str]
    status: int = -1
    said: str = ""


def findings(seed: int, numbers: Iterator[int], jobs: int, only: str | None = None) -> Iterator[Finding]:
    """Play cases; yield one for each that is done, with what was wrong, if anything."""
    workers: list[Worker] = []
    try:
        while True:
            while len(workers) < jobs and (number := next(numbers, None)) is not None:
                workers.append(start(seed, only))
                workers[-1].give(number)
            if not workers:
                return
            ready = wait([worker.pipe for worker in workers], timeout=_POLL_S)
            for worker in list(workers):
                done = _result(worker) if worker.pipe in ready else _overdue(worker)
                if done is None:
                    continue
                if worker.pipe.closed:
                    workers.remove(worker)
                yield done
                if not worker.pipe.closed:
                    if (number := next(numbers, None)) is not None:
                        worker.give(number)
                    else:
                        workers.remove(worker)
                        worker.end()
    finally:
        for worker in workers:
            worker.end()


def _result(worker: Worker) -> Finding | None:
    try:
        number, status, wrong, said = worker.pipe.recv()
    except EOFError:
        return Finding(worker.number, [f"ended its process ({worker.end()})"])
    return Finding(number, wrong, status, said)


def _overdue(worker: Worker) -> Finding | None:
    reason = worker.failing()
    if reason is None:
        return None
    worker.end()
    return Finding(worker.number, [reason])
