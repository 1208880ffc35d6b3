"""Where the carriers of a harvest are reached: they connect, are told what to run, and say what happened."""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from bftrainer.harvest.agent import proof
from bftrainer.harvest.harvest_events import (
    CarrierLeaving,
    CarrierLost,
    CarrierUp,
    HarvestEvent,
    Progressed,
    RankExited,
    StartRank,
    StopRank,
)

_MOST_UNKNOWN = 4096
"""Bytes that a stranger may send before it is sent away."""
_PATIENCE_S, _MOST_STRANGERS = 10.0, 256


class CarrierEngine(Protocol):
    """Holds nodes for a harvest by carriers, and knows which nodes are idle.

    After a carrier is lost, `poll` tells by `PoolChanged` if its node is idle, or idle again.
    """

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """Wait for something to happen, at most so long; what did."""

    def request(self, nodes: tuple[str, ...]) -> None:
        """Start a carrier on each of these nodes, which may come later or never."""

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""

    def start(self, rank: StartRank) -> None:
        """Start a rank."""

    def stop(self, rank: StopRank) -> None:
        """Ask a rank to save and end."""

    @property
    def is_over(self) -> bool:
        """Whether no node will be idle any more."""

    def close(self) -> None:
        """End all carriers, and wait until they are gone."""


class _Link:
    """A connection, from a stranger until it has shown that it knows the key."""

    def __init__(self, stream: socket.socket, address: str) -> None:
        self.stream, self.address = stream, address
        self.challenge, self.input, self.output = secrets.token_hex(16), b"", b""
        self.node = self.carrier = ""
        self.since_s = time.monotonic()


class CarrierHub:
    """Listens for carriers, sends them orders, and makes events of what they say.

    Parameters
    ----------
    directory : Path
        Of the harvest: logs of ranks, and checkpoints of tasks that say no other place.
    grace_s : float
        The most time that ranks have to end, whatever their task says.
    host : str
        Address to listen at; on this machine only by default.

    Attributes
    ----------
    key : str
        What carriers have to know; handed to them in their environment.
    """

    def __init__(self, directory: Path, grace_s: float = math.inf, host: str = "127.0.0.1") -> None:
        self.directory, self.key, self._grace_s = directory.resolve(), secrets.token_hex(32), grace_s
        self._server = socket.create_server((host, 0), backlog=1024)
        self._server.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._links: dict[str, _Link] = {}
        self._strangers: set[_Link] = set()
        self._events: list[HarvestEvent] = []

    @property
    def port(self) -> int:
        """Port that it listens at."""
        port: int = self._server.getsockname()[1]
        return port

    def watch(self, source: Any, do: Callable[[], object]) -> None:
        """Call a function when something else can be read while `poll` waits."""
        self._selector.register(source, selectors.EVENT_READ, do)

    def forget(self, source: Any) -> None:
        """Watch it no more."""
        self._selector.unregister(source)

    def poll(self, timeout_s: float) -> list[HarvestEvent]:
        """Wait for carriers to say something, at most so long; what happened."""
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            if key.fileobj is self._server:
                self._accept()
            elif isinstance(key.data, _Link):
                if key.data.stream.fileno() >= 0:  # not sent away just now
                    self._serve(key.data)
            else:
                key.data()
        for link in [each for each in self._strangers if time.monotonic() - each.since_s > _PATIENCE_S]:
            self._drop(link)
        events, self._events = self._events, []
        return events

    def _accept(self) -> None:
        with suppress(OSError):  # it is gone already
            stream, address = self._server.accept()
            stream.setblocking(False)
            link = _Link(stream, address[0])
            if len(self._strangers) >= _MOST_STRANGERS:  # else they could take all file descriptors
                self._drop(min(self._strangers, key=lambda each: each.since_s))
            self._strangers.add(link)
            self._selector.register(stream, selectors.EVENT_READ, link)
            self._send(link, link.challenge.encode() + b"\n")

    def _send(self, link: _Link, text: bytes) -> None:
        """Send what the connection takes; the rest when it takes more."""
        link.output += text
        with suppress(BlockingIOError, OSError):  # that it is gone is seen when it is read
            while link.output:
                link.output = link.output[link.stream.send(link.output) :]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.output else 0)
        self._selector.modify(link.stream, wanted, link)

    def _serve(self, link: _Link) -> None:
        if link.output:
            self._send(link, b"")
        try:
            piece = link.stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        *lines, link.input = (link.input + piece).split(b"\n")
        try:
            for line in lines:
                self._on_message(link, json.loads(line)) if link.carrier else self._welcome(link, json.loads(line))
        except (ValueError, TypeError, RecursionError):  # no carrier of ours says that
            piece = b""
        if not piece or (not link.carrier and len(link.input) > _MOST_UNKNOWN):
            self._drop(link)

    def _welcome(self, link: _Link, hello: Any) -> None:
        """Welcome a stranger that is a carrier of ours; a `ValueError` or the like if it is none."""
        _, node, carrier, shown, challenge = map(str, hello)
        if not hmac.compare_digest(shown.encode(), proof(self.key, "carrier", link.challenge, carrier).encode()):
            raise ValueError("It does not know the key.")
        self._send(link, proof(self.key, "hub", challenge, carrier).encode() + b"\n")
        link.node, link.carrier = node, carrier
        self._strangers.discard(link)
        self._links[carrier] = link
        self._events.append(CarrierUp(node, carrier, link.address))

    def _on_message(self, link: _Link, what: list[Any]) -> None:
        word, *rest = what
        if word == "leaving":
            self._events.append(CarrierLeaving(link.node, link.carrier, *rest))
        elif word == "progress":
            self._events.append(Progressed(*rest))
        elif word == "exited":
            task, generation, status, tail = rest
            self._events.append(RankExited(task, generation, link.node, status, tail))

    def _drop(self, link: _Link) -> None:
        self._selector.unregister(link.stream)
        link.stream.close()
        self._strangers.discard(link)
        if self._links.pop(link.carrier, None) is not None:
            self._events.append(CarrierLost(link.node, link.carrier))

    def release(self, node: str, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""
        del node
        self._order(carrier, do="leave")

    def stop(self, rank: StopRank) -> None:
        """Ask a rank to save and end."""
        self._order(rank.carrier, do="stop", task=rank.task, generation=rank.generation)

    def start(self, rank: StartRank) -> None:
        """Start a rank, with the variables that torch.distributed expects, and ours."""
        task, spec = rank.task, rank.task.spec
        place = str(task.place(self.directory))
        env = {
            "RANK": rank.rank,
            "WORLD_SIZE": rank.world_size,
            "LOCAL_RANK": 0,
            "MASTER_ADDR": rank.address,
            "MASTER_PORT": rank.port,
            "BFTRAINER_TASK": task.name,
            "BFTRAINER_CHECKPOINT_DIR": place,
            "BFTRAINER_GENERATION": rank.generation,
            "BFTRAINER_PROGRESS": os.path.join(place, "progress"),
            "BFTRAINER_WORK": spec.work,
            "BFTRAINER_NODES": f"{spec.min_nodes}:{spec.max_nodes}",
            "PYTHONUNBUFFERED": "1",
        }
        log = self.directory / "logs" / task.name / f"{rank.generation:04}-{rank.rank}.log"
        self._order(
            rank.carrier,
            do="start",
            task=task.name,
            generation=rank.generation,
            rank=rank.rank,
            command=list(task.command),
            workdir=task.workdir,
            env={name: str(value) for name, value in env.items()} | dict(task.env),
            log=str(log),
            grace_s=min(task.grace_s, self._grace_s),
            progress=task.progress,
        )

    def _order(self, carrier: str, **order: Any) -> None:
        link = self._links.get(carrier)
        if link is not None:  # else its loss is told
            self._send(link, json.dumps(order).encode() + b"\n")

    def close(self) -> None:
        """Close all connections, at which carriers end."""
        for link in [*self._links.values(), *self._strangers]:
            self._drop(link)
        self._selector.close()
        self._server.close()
