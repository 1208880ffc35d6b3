"""Connections of a worker: their number, their deadlines, and whose they are.

A connection that has sent no whole request costs a descriptor and nobody's time. When there is no room for a new one,
the one that has kept the server waiting longest is closed for it, so that clients who send what they have are
answered, however many there are who don't. What comes when all are at work is answered 503, but for health checks.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from bftrainer.errors import SettingsError
from bftrainer.extras import requiring
from bftrainer.zeus.server.settings import PEER_UID, ServerSettings, network_of, settings_from_environment

with requiring("The server needs", "server", "uvicorn", "httptools"):
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds for the head of a request or a handshake, for its body, and for an answer to be read; between two looks.
HEAD_S, BODY_S, ANSWER_S = 10.0, 30.0, 30.0
_LOOK_S = 0.5
# Bytes of a head, and those that a body may take on the way for each of its own: it may come in chunks.
_HEAD_BYTES, _CHUNKED = 1 << 16, 8
# Descriptors for all that is no connection: the database, logs; and connections beyond the usual, to be refused.
RESERVED, _SURPLUS = 64, 16
_HEALTH = "/healthz"
_BUSY = 503, b"The server has too many connections; try again."
_REASONS = {408: b"Request Timeout", 413: b"Content Too Large", 431: b"Request Header Fields Too Large"}
_REASONS |= {503: b"Service Unavailable"}
_PEER_CREDENTIALS = struct.Struct("3i")  # process, user, group


def room_for(connections: int) -> int:
    """Connections that a process has room for, at most so many; raises its limit of descriptors if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED + _SURPLUS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(min(connections, soft - RESERVED - _SURPLUS), 1)


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Load the certificate and its key, if there are any.

    Raises
    ------
    SettingsError
        If they cannot be read, or don't go together; it names the option and the file.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    cert, key = settings.tls_cert, settings.tls_key
    parts: dict[str, Callable[[], None]] = {
        f"--tls-cert {cert}: No certificate": lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cert
        ),
        f"--tls-key {key}: No key of {cert}": lambda: context.load_cert_chain(cert, key, password=_no_password),
    }
    for fault, load in parts.items():
        try:
            load()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise SettingsError(f"{fault} (PEM): {reason}.") from None
    return context


def _no_password() -> str:
    """Refuse a key that is encrypted, rather than ask a terminal for its password."""
    raise ValueError("the key is encrypted")


class _Connections:
    """The connections of a process."""

    def __init__(self, settings: ServerSettings) -> None:
        self.most, self.most_of_a_peer = room_for(settings.most_connections), settings.most_of_a_peer
        self.proxies, self.tls = frozenset(settings.proxies), tls_context(settings)
        self.most_bytes = _HEAD_BYTES + _CHUNKED * settings.max_body_bytes
        # In order: those that wait for a request longest come first.
        self.all: dict[Connection, None] = {}
        self.begun: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}
        self.of_peer: dict[str, int] = {}
        self._looking = False

    def admit(self, new: Connection) -> bool:
        """Take in a connection, closing another one for it if need be; return whether there is room."""
        self.all[new] = None
        self.of_peer[new.peer] = self.of_peer.get(new.peer, 0) + 1
        if not self._looking:
            self._looking = True
            new.loop.call_later(_LOOK_S, self._look)
        if new.peer not in self.proxies and self.of_peer[new.peer] > self.most_of_a_peer:
            return self._close_one(new, new.peer)
        return len(self.all) <= self.most or self._close_one(new)

    def forget(self, old: Connection) -> None:
        """A connection is closed."""
        if old in self.all:
            del self.all[old]
            self.of_peer[old.peer] -= 1
            if not self.of_peer[old.peer]:
                del self.of_peer[old.peer]
        self.begun.pop(old, None)
        self.idle.pop(old, None)

    def _close_one(self, new: Connection, peer: str | None = None) -> bool:
        """Close the connection that has waited longest, of a peer or of all, for a new one."""
        for waiting in (self.begun, self.idle):
            for each in waiting:
                if each is not new and (peer is None or each.peer == peer):
                    each.dismiss(*_BUSY)
                    return True
        return False

    def _look(self) -> None:
        """Close the connections whose time is up; and again, while there are any."""
        if not self.all:
            self._looking = False
            return
        loop = next(iter(self.all)).loop
        now = loop.time()
        for each in [each for each in self.all if each.due < now]:
            each.dismiss(408, b"The request took too long.")
        loop.call_later(_LOOK_S, self._look)


@cache
def _connections() -> _Connections:
    return _Connections(settings_from_environment())


_NEVER = float("inf")


class Connection(HttpToolsProtocol):
    """A connection that may take only so long, and that knows which user of this machine is at the other end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # No route is one: whatever took the transport over would never give its place back here.
        self.ws_protocol_class = None
        self.worker_connections = _connections()
        self.due, self.peer = _NEVER, ""
        self.uid: int | None = None
        self._received, self._early = 0, b""
        self._reading = self._in_body = self._awaits_reader = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a connection, if there is room, or one that can be closed for it."""
        self.transport = transport
        end = transport.get_extra_info("socket")
        if end is not None and end.family == socket.AF_UNIX:
            credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
            self.uid = _PEER_CREDENTIALS.unpack(credentials)[1]
        address = transport.get_extra_info("peername")
        self.peer = f"uid:{self.uid}" if self.uid is not None else network_of(address[0]) if address else ""
        self._wait()
        if not self.worker_connections.admit(self):
            if len(self.worker_connections.all) > self.worker_connections.most + _SURPLUS:
                self.dismiss(*_BUSY)
                return
            self.app = _only_health(self.app)
        if self.worker_connections.tls is None:
            super().connection_made(transport)
        else:
            transport.pause_reading()  # as uvloop reads all the same, `data_received` keeps what comes
            self._securing = self.loop.create_task(self._secure(transport, self.worker_connections.tls))

    async def _secure(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        shaking = self.loop.create_task(
            self.loop.start_tls(transport, self, context, server_side=True, ssl_handshake_timeout=HEAD_S)
        )
        # Once the task has begun, and what it has called for then is done.
        self.loop.call_soon(self.loop.call_soon, self._hand_over, transport)
        try:
            secured = await shaking
        except (OSError, asyncio.CancelledError):  # the other end does not want, or not in time
            self.worker_connections.forget(self)
            transport.abort()
            return
        if secured is None or self not in self.worker_connections.all:
            transport.abort()
            return
        super().connection_made(secured)
        if self._early:
            self.data_received(self._early)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """Give the handshake what came before it had begun."""
        early, self._early = memoryview(self._early), b""
        handshake: Any = transport.get_protocol()
        while early and handshake is not self:
            buffer = handshake.get_buffer(len(early))
            size = min(len(buffer), len(early))
            buffer[:size] = early[:size]
            handshake.buffer_updated(size)
            early = early[size:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room."""
        self.worker_connections.forget(self)
        if self.flow is not None:
            super().connection_lost(exc)

    def dismiss(self, status: int, message: bytes) -> None:
        """Close a connection, with an answer unless one has begun."""
        self.worker_connections.forget(self)
        # What is in a body's place belongs to the latest request, else to the next one.
        begun = self._in_body and self.cycle is not None and self.cycle.response_started
        if (
            begun
            or self._awaits_reader
            or (self.flow is None and self.worker_connections.tls is not None)
            or self.transport.is_closing()
        ):
            self.transport.abort()
        else:
            body = b'{"message": "%s"}' % message
            lines = [b"HTTP/1.1 %d %s" % (status, _REASONS[status]), b"content-type: application/json"]
            lines += [b"content-length: %d" % len(body), b"connection: close"] + [b"retry-after: 1"] * (status == 503)
            self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()
        # Whoever does not read the answer either keeps nothing open.
        self.loop.call_later(_LOOK_S, self.transport.abort)

    def _wait(self) -> None:
        """A request may begin, and then has so long for its head."""
        self.due = self.loop.time() + HEAD_S
        self.worker_connections.begun[self] = None
        self._received, self._in_body = 0, False

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, unless it has become too long."""
        if self.flow is None:  # it came before the handshake has begun, or with its end
            self._early += data
            return
        if self in self.worker_connections.idle:
            del self.worker_connections.idle[self]
            self._wait()
        self._received += len(data)
        super().data_received(data)
        if self._reading and self._received > (self.worker_connections.most_bytes if self._in_body else _HEAD_BYTES):
            self.dismiss(*((413, b"The request is too long.") if self._in_body else (431, b"The head is too long.")))

    def on_message_begin(self) -> None:
        """A request begins; it knows which user sends it."""
        super().on_message_begin()
        self._reading = True
        if self.uid is not None:
            self.scope["state"][PEER_UID] = self.uid

    def on_headers_complete(self) -> None:
        """The body may take longer than the head."""
        self._in_body = True
        if self in self.worker_connections.begun:  # else an earlier request is at work
            self.due = self.loop.time() + BODY_S
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A whole request is here: from now on it waits for the server."""
        self._reading = self._in_body = False
        self._received = 0
        self.due = _NEVER
        self.worker_connections.begun.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection waits for another request, or for the rest of one that needed none."""
        super().on_response_complete()
        if self.transport.is_closing() or self not in self.worker_connections.all:
            return
        if self._reading:
            self.worker_connections.begun[self] = None
            self.due = self.loop.time() + BODY_S
        elif self.cycle.response_complete:  # else the next one is at work
            self.worker_connections.idle[self] = None

    def pause_writing(self) -> None:
        """An answer has so long to be read."""
        self.due, self._awaits_reader = self.loop.time() + ANSWER_S, True
        super().pause_writing()

    def resume_writing(self) -> None:
        """It is being read."""
        self.due, self._awaits_reader = _NEVER, False
        super().resume_writing()


def _only_health(app: Any) -> Any:
    """Answer health checks, and refuse all else for now."""
    from starlette.responses import JSONResponse

    busy = JSONResponse({"message": _BUSY[1].decode()}, _BUSY[0], headers={"Retry-After": "1", "Connection": "close"})

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["path"] == _HEALTH:
            await app(scope, receive, send)
            return
        while (await receive()).get("more_body"):  # who still sends may miss an answer
            pass
        await busy(scope, receive, send)

    return answer
