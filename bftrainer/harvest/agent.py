"""The agent that holds a node for a harvest: starts ranks as the controller says, and gives the node back in time.

``python -m bftrainer.harvest.agent HOST PORT NODE CARRIER HOLD_S [FD...]``, with the harvest's key in the environment
variable `KEY`. Told to leave, by SIGTERM, by its controller or because it has held the node for HOLD_S, it says so at
once, asks its ranks to save and end, and ends when they have. It does the same when its controller is gone. Each rank
is under a `bftrainer.supervisor`, which ends all that the rank has started, also when the agent itself is killed.
The file descriptors FD stay open until all are gone. Messages are lines of JSON. An agent is small: it imports nothing
of the package but the supervisor.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bftrainer import supervisor
from bftrainer.supervisor import SupervisedProcess

KEY = "BFTRAINER_CARRIER_KEY"
_TICK_S = 0.5
_TAIL, _TAIL_LINES, _MOST_OUTPUT = 4000, 3, 1 << 20
_CONNECT_S = 30.0
_KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""A controller that cannot be reached for half a minute is gone."""


class _Rank:
    """A rank under its supervisor, and what it reports."""

    def __init__(self, order: dict[str, Any], descriptors: Sequence[int]) -> None:
        self.order, self.status, self.ended = order, -signal.SIGKILL, False
        self.log, self._began = Path(order["log"]), -1.0
        # Where work is reported, the pattern to find it by, and what of it is from before.
        self._place: Path | None = None
        self._pattern: re.Pattern[str] | None = None
        self._seen_ns = 0
        kind, _, rest = order["progress"].partition(":")
        if kind == "stdout" and not order["rank"]:
            self._place, self._pattern = self.log, re.compile(rest, re.MULTILINE)
        elif not order["rank"]:
            self._place = Path(order["workdir"], rest if kind == "file" else order["env"]["BFTRAINER_PROGRESS"])
            with suppress(OSError, ValueError, IndexError):
                self._seen_ns = self._place.stat().st_mtime_ns
                self._began = float(self._place.read_text().split()[0])
        self.last: list[float] = []
        with self.log.open("ab", buffering=0) as log:
            self._offset = log.tell() if self._place == self.log else 0
            self.process = SupervisedProcess(
                order["command"], Path(order["workdir"]), order["env"], log, order["grace_s"], descriptors
            )

    @property
    def key(self) -> tuple[str, int]:
        """Task and generation."""
        return self.order["task"], self.order["generation"]

    def report(self) -> list[float] | None:
        """Work done, work saved, the time of it, and the work it began with, as `Progressed`; None: nothing is new."""
        if self._place is None:
            return None
        numbers: list[float] = []
        with suppress(OSError, ValueError):
            if self._pattern is not None:
                with self._place.open("rb") as stream:
                    self._offset = max(self._offset, stream.seek(0, os.SEEK_END) - _MOST_OUTPUT)
                    stream.seek(self._offset)
                    text = stream.read()
                end = text.rfind(b"\n") + 1
                self._offset += end
                matches = self._pattern.findall(text[:end].decode(errors="replace").replace("\r\n", "\n"))
                numbers = [float(matches[-1])] if matches else []
            elif (changed_ns := self._place.stat().st_mtime_ns) != self._seen_ns:
                numbers, self._seen_ns = [float(word) for word in self._place.read_text().split()], changed_ns
        if not numbers or numbers == self.last or not all(0 <= number < math.inf for number in numbers):
            return None
        self.last = numbers
        is_ours = self.order["progress"] == "reported" and len(numbers) == 4
        return numbers if is_ours else [numbers[0], -1.0, time.time(), self._began]

    def tail(self) -> str:
        """The last lines of its log, if it failed."""
        if not self.status:
            return ""
        with suppress(OSError), self.log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
            lines = stream.read().decode(errors="replace").split("\n")
            return " | ".join([line.strip() for line in lines if line.strip()][-_TAIL_LINES:])
        return ""

    def read_status(self) -> bool:
        """Read what its supervisor says; whether it is gone, and with it all that the rank has started."""
        if not self.process.read_status():
            return False
        status = self.process.status
        if "exited" in status:
            self.status, self.ended = int(status["exited"]), True
        elif "refused" in status:
            self.status, self.ended = 127, True
            with suppress(OSError), self.log.open("a") as log:
                log.write(f"The command cannot be run: {status['refused']}\n")
        self.process.supervisor.returncode = 0  # it is reaped with all others
        return True


class Agent:
    """Holds a node for `hold_s` at most, and talks to its controller; its ranks keep some descriptors open, too."""

    def __init__(self, link: socket.socket, hold_s: float, descriptors: Sequence[int] = ()) -> None:
        self._link, self._descriptors = link, descriptors
        self._until_s = time.monotonic() + hold_s
        self._ranks: list[_Rank] = []
        self._is_leaving, self._input, self._sweep = False, b"", 0
        self._selector = selectors.DefaultSelector()
        self._signals = supervisor.signal_pipe()
        supervisor.adopt_orphans()
        self._hear(self._link, self._on_order)
        self._hear(self._signals, self.leave)

    def _hear(self, source: Any, do: Callable[[], object]) -> None:
        self._selector.register(source, selectors.EVENT_READ, do)

    def run(self) -> None:
        """Work until the node is to be given back, and all ranks have ended."""
        while self._ranks or not self._is_leaving:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            for rank in self._ranks:
                self._report(rank)
            if time.monotonic() > self._until_s:
                self.leave(is_over=True)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if self._sweep:  # what a killed supervisor has left is the agent's now
                supervisors = {rank.process.supervisor.pid for rank in self._ranks}
                for process in supervisor.descendants(os.getpid(), supervisors):
                    if process not in supervisors:
                        with suppress(ProcessLookupError, PermissionError):
                            os.kill(process, signal.SIGKILL)
                            self._sweep = 2
                self._sweep -= 1

    def _on_order(self) -> None:
        """Do what the controller says; leave if it is gone."""
        try:
            piece = self._link.recv(1 << 16)
        except OSError:
            piece = b""
        if not piece:
            self._selector.unregister(self._link)
            self._link.close()
            self.leave()
        *lines, self._input = (self._input + piece).split(b"\n")
        for order in map(json.loads, lines):
            if order["do"] == "start" and not self._is_leaving:
                self._start(order)
            elif order["do"] == "stop":
                for rank in self._ranks:
                    if rank.key == (order["task"], order["generation"]):
                        rank.process.stop()
            elif order["do"] == "leave":
                self.leave()

    def _start(self, order: dict[str, Any]) -> None:
        order["env"] = {**os.environ, **order["env"]}
        order["env"].pop(KEY, None)
        try:
            Path(order["log"]).parent.mkdir(parents=True, exist_ok=True)
            Path(order["env"]["BFTRAINER_CHECKPOINT_DIR"]).mkdir(parents=True, exist_ok=True)
            rank = _Rank(order, self._descriptors)
        except OSError as fault:
            self._say("exited", order["task"], order["generation"], 127, f"{fault.filename}: {fault.strerror}")
            return
        self._ranks.append(rank)
        self._hear(rank.process.status_pipe, lambda: self._on_status(rank))

    def _on_status(self, rank: _Rank) -> None:
        pipe = rank.process.status_pipe
        if rank.read_status():
            self._selector.unregister(pipe)
            if not self._is_leaving and any(key.fileobj == self._signals for key, _ in self._selector.select(0)):
                self.leave()  # Slurm asks ranks to end, too: one that did so is not done
            self._report(rank)
            self._ranks.remove(rank)
            self._sweep = self._sweep if rank.ended else 2
            self._say("exited", *rank.key, rank.status, rank.tail())

    def _report(self, rank: _Rank) -> None:
        if (numbers := rank.report()) is not None:
            self._say("progress", *rank.key, *numbers)

    def leave(self, *, is_over: bool = False) -> None:
        """Say that the node is given back, perhaps as its time is over, and ask all ranks to end."""
        if not self._is_leaving:
            self._is_leaving = True
            self._selector.unregister(self._signals)
            self._say("leaving", is_over)
            for rank in self._ranks:
                rank.process.stop()

    def _say(self, *what: object) -> None:
        try:
            self._link.sendall(json.dumps(what).encode() + b"\n")
        except OSError:  # it is gone, or has heard nothing for half a minute: seen when it is read
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)


def proof(key: str, who: str, challenge: str, carrier: str) -> str:
    """What shows that the hub, or a carrier, knows the key, without telling it."""
    return hmac.new(key.encode(), f"{who} {challenge} {carrier}".encode(), hashlib.sha256).hexdigest()


def _line(link: socket.socket) -> str:
    """Receive a line, and nothing of what comes after it."""
    line = b""
    while not line.endswith(b"\n"):
        piece = link.recv(1)
        if not piece:
            sys.exit("The connection was closed.")
        line += piece
    return line.decode(errors="replace").strip()


def main(arguments: Sequence[str]) -> None:
    """Connect to the controller, and hold the node."""
    host, port, node, carrier, hold_s, *descriptors = arguments
    try:
        link = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
    except OSError as fault:  # such as a controller that is gone again
        sys.exit(f"{carrier}: No controller at {host}:{port}: {fault.strerror}.")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        link.setsockopt(socket.IPPROTO_TCP, option, value)
    challenge, key = os.urandom(16).hex(), os.environ[KEY]
    hello = ["hello", node, carrier, proof(key, "carrier", _line(link), carrier), challenge]
    link.sendall(json.dumps(hello).encode() + b"\n")
    if not hmac.compare_digest(_line(link).encode(), proof(key, "hub", challenge, carrier).encode()):
        sys.exit(f"{host}:{port} is not the controller.")  # its orders would be run
    link.settimeout(_CONNECT_S)
    Agent(link, float(hold_s), list(map(int, descriptors))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
