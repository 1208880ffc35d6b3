"""Where the carriers of a harvest are reached: they connect, are told what to run, and say what happened."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.agent import proof

_LONGEST_LINE, _PATIENCE_S = 1 << 16, 10.0
_NO_CARRIER = (ValueError, TypeError, RecursionError, OSError, EOFError)
"""What comes of a connection that is broken, is silent for too long, or says what no carrier of ours does."""


class CarrierHub:
    """Listens for carriers, sends them orders, and makes events of what they say, while `poll` waits.

    Carriers have to know the `key`, which is in their environment. Ranks have `grace_s` to end, whatever their task
    says; their logs, and checkpoints of tasks that say no other place, are in the harvest's directory.
    """

    def __init__(self, directory: Path, grace_s: float = math.inf, host: str = "127.0.0.1") -> None:
        self.directory, self.key, self._grace_s = directory.resolve(), secrets.token_hex(32), grace_s
        self._loop, self._events, self._happened = asyncio.new_event_loop(), list[ev.HarvestEvent](), asyncio.Event()
        self._carriers: dict[str, asyncio.StreamWriter] = {}
        listener = socket.create_server((host, 0), backlog=1024)  # one port: asyncio takes one for each kind of address
        self.port: int = listener.getsockname()[1]
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, sock=listener, limit=_LONGEST_LINE, backlog=1024)
        )

    def watch(self, source: int, do: Callable[[], object]) -> None:
        """Call a function when a file descriptor can be read while `poll` waits."""

        def on_readable() -> None:
            do()
            self._happened.set()

        self._loop.add_reader(source, on_readable)

    def forget(self, source: int) -> None:
        """Watch it no more."""
        self._loop.remove_reader(source)

    def poll(self, timeout_s: float) -> list[ev.HarvestEvent]:
        """Wait for carriers to say something, at most so long; what happened."""
        self._loop.run_until_complete(self._wait(timeout_s))
        self._happened.clear()
        events, self._events = self._events, []
        return events

    async def _wait(self, timeout_s: float) -> None:
        await asyncio.sleep(0.0)  # what is there already is read, however short the time is
        with suppress(TimeoutError):
            await asyncio.wait_for(self._happened.wait(), max(0.0, timeout_s))

    def _tell(self, event: ev.HarvestEvent) -> None:
        self._events.append(event)
        self._happened.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear a connection: a stranger, until it has shown that it knows the key."""
        node = carrier = ""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                node, carrier = await self._welcome(reader, writer)
            self._carriers[carrier] = writer
            self._tell(ev.CarrierUp(node, carrier, writer.get_extra_info("peername")[0]))
            while line := await reader.readline():
                match json.loads(line):
                    case ["leaving", *details]:
                        self._tell(ev.CarrierLeaving(node, carrier, *details))
                    case ["progress", *details]:
                        self._tell(ev.Progressed(*details))
                    case ["exited", task, generation, status, tail]:
                        self._tell(ev.RankExited(task, generation, node, status, tail))
                    case [str() as word, *_] if word != "exited":
                        pass  # a carrier of another version
                    case _:
                        raise ValueError("No carrier of ours says this.")
        except (*_NO_CARRIER, asyncio.CancelledError):  # asyncio logs a connection that is cancelled, with a traceback
            pass
        finally:
            writer.close()
            if self._carriers.get(carrier) is writer:
                del self._carriers[carrier]
                self._tell(ev.CarrierLost(node, carrier))

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, str]:
        """Node and name of a stranger that is a carrier of ours; a `ValueError` or the like if it is none."""
        nonce = secrets.token_hex(16)
        writer.write(nonce.encode() + b"\n")
        _, node, carrier, shown, challenge = map(str, json.loads(await reader.readline()))
        if not hmac.compare_digest(shown.encode(), proof(self.key, "carrier", nonce, carrier).encode()):
            raise ValueError("It does not know the key.")
        writer.write(proof(self.key, "hub", challenge, carrier).encode() + b"\n")
        return node, carrier

    def release(self, carrier: str) -> None:
        """Have a carrier end its ranks, and itself."""
        self._order(carrier, do="leave")

    def stop(self, rank: ev.StopRank) -> None:
        """Ask a rank to save and end."""
        self._order(rank.carrier, do="stop", task=rank.task, generation=rank.generation)

    def start(self, rank: ev.StartRank) -> None:
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
        self._order(
            rank.carrier,
            do="start",
            task=task.name,
            generation=rank.generation,
            rank=rank.rank,
            command=list(task.command),
            workdir=task.workdir,
            env={name: str(value) for name, value in env.items()} | dict(task.env),
            log=str(self.directory / "logs" / task.name / f"{rank.generation:04}-{rank.rank}.log"),
            grace_s=min(task.grace_s, self._grace_s),
            progress=task.progress,
        )

    def _order(self, carrier: str, **order: Any) -> None:
        if carrier in self._carriers:  # else its loss is told
            self._carriers[carrier].write(json.dumps(order).encode() + b"\n")

    def close(self) -> None:
        """Close all connections, at which carriers end."""
        self._server.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for connection in asyncio.all_tasks() - {asyncio.current_task()}:
            connection.cancel()
            with suppress(asyncio.CancelledError):
                await connection
        await asyncio.sleep(0.0)
