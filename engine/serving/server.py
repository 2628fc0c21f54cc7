"""Runs the application on uvicorn: its own socket, deadlines and fairness of connections, a graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any, cast

import h11
import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.errors import ConfigurationError
from engine.serving.application import Application
from engine.serving.limits import RoundRobin, Rounds, network

logger = logging.getLogger("ipu.serving")
HEADER_TIMEOUT = 10.0
"""Seconds within which the head of a request must have arrived, from the connection or from its first byte on."""

UNREAD_PERIOD = 10.0
"""Seconds between two looks at an answer that its client has not read."""

LEAST_READ = 64 << 10
"""Bytes of an answer that its client must read in each period."""

MOST_UNREAD = 256 << 20
"""Bytes of answers that all clients together have not read; above, the connection with the most of them is closed."""

GRACE = 10
"""Seconds that running requests get when the server stops."""

HEADER_BYTES = 64 << 10
BACKLOG = 1024
"""Connections that may wait to be accepted."""

ACCEPTED_AT_ONCE = 8
"""Connections that are accepted before other work of the server: a flood of them keeps no client waiting."""

CLOSED_SHARE = 64
"""The share of all connections that a new one closes if an address has over a quarter of them: floods delay nobody."""

EVENTS_AT_ONCE = 16
"""Parts of requests (heads, pieces of bodies, ends) that a connection parses before others have their turn."""

OTHER_FILES = 256
"""Open files of a server besides its connections."""

FULL = JSONResponse(
    {"error": "The server has as many connections as it takes, all of them with requests"}, 503, {"connection": "close"}
)
"""The application of connections for which there is no space, as all others have requests under way."""


class Connection(H11Protocol):
    """One client's connection. Each of its requests has a deadline, as has the reading of each answer.

    If there are more connections than `most`, the address with the most connections loses some: those whose client has
    sent no whole request for longest. A client that opens many connections locks no other client out. A client that
    sends bodies in tiny chunks does not, either: they are parsed in rounds of all addresses.
    """

    def __init__(self, most: int, rounds: Rounds, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.most, self._rounds = most, rounds
        self._next_event, self._events_left, self._has_more = self.conn.next_event, 0, False
        # uvicorn makes the connection itself, and asks it for events in a loop of its own.
        self.conn.next_event = self._one_of_few_events  # type: ignore[method-assign]
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self.address = ""
        self.idle_since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection is idle, or the body of its request has not arrived."""
        return self.is_idle or self.cycle.more_body

    @property
    def _unread(self) -> int:
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: Any) -> None:
        """Starts the deadline of the first request; makes space for the connection if there is none."""
        super().connection_made(transport)
        self.address, self.idle_since = network(self.client), self.loop.time()
        self._deadline = self.loop.call_later(HEADER_TIMEOUT, self.close)
        if not _have_space(self.connections, self.most, self):
            self.app = FULL

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the deadlines."""
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Starts a deadline at a request's first byte, and ends it where its head is complete."""
        if self._has_more:  # uvicorn has resumed the reading
            self.conn.receive_data(data)
            self.transport.pause_reading()
            return
        super().data_received(data)
        if not self.is_idle:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_TIMEOUT, self.close)

    def handle_events(self) -> None:
        """Parses a few parts of what has arrived; the others when it is the turn of this client again."""
        self._events_left = EVENTS_AT_ONCE
        super().handle_events()

    def _one_of_few_events(self) -> Any:
        if self._events_left:
            self._events_left -= 1
            return self._next_event()
        if not self._has_more:
            self._has_more = True
            self.transport.pause_reading()
            self._rounds.wait(self.address, self._parse_more)
        return h11.NEED_DATA

    def _parse_more(self) -> bool:
        self._has_more = False
        if self.transport.is_closing():
            return False
        self.handle_events()
        if not (self._has_more or self.flow.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()
        return True

    def on_response_complete(self) -> None:
        """Starts the deadline of the answer, where the client has not read it yet."""
        self.idle_since = self.loop.time()
        if self._unread and self._reading is None:
            self._watch_reading(self._unread)
            self._bound_unread()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are no HTTP, with the error as JSON."""
        body = json.dumps({"error": f"Malformed request: {msg}"}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def close(self) -> None:
        """Ends the connection without a word."""
        self.transport.abort()

    def _watch_reading(self, before: int) -> None:
        self._reading = self.loop.call_later(UNREAD_PERIOD, self._check_reading, before)

    def _check_reading(self, before: int) -> None:
        self._reading = None
        if not self._unread:
            return
        if self._unread > before - LEAST_READ:
            self.close()
        else:
            self._watch_reading(self._unread)

    def _bound_unread(self) -> None:
        unread = {each: each._unread for each in self.connections if isinstance(each, Connection)}
        if sum(unread.values()) > MOST_UNREAD:
            max(unread, key=lambda each: unread[each]).close()


class Handshake(asyncio.Protocol):
    """A connection until the client has finished TLS' handshake; then `connection` takes it over.

    Unlike asyncio's own handshakes, it counts as a connection. It has the deadline of a request's head.
    """

    waits_for_client = True

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        self._connection, self._context = connection, context
        self._connections: set[Any] = connection.connections
        self._received: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self.address = ""
        self.idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Starts the handshake of a new socket; makes space for the socket if there is none."""
        if self._task is not None:  # TLS' own transport
            return
        transport.pause_reading()  # the first bytes are for TLS
        self._transport, connections = transport, self._connections
        self.address, self.idle_since = network(transport.get_extra_info("peername")), self._connection.loop.time()
        connections.add(self)
        if not _have_space(connections, self._connection.most, self):
            self.close()
        self._task = self._connection.loop.create_task(self._shake())

    async def _shake(self) -> None:
        try:
            made: Any = await self._connection.loop.start_tls(
                self._transport, self, self._context, server_side=True, ssl_handshake_timeout=HEADER_TIMEOUT
            )
        except OSError:  # as are SSLError and TimeoutError
            self.close()
            return
        finally:
            self._connections.discard(self)
        if made is None or made.is_closing():
            return
        made.set_protocol(self._connection)
        self._connection.connection_made(made)
        for data in self._received:
            self._connection.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Keeps what arrives before the connection is taken over."""
        self._received.append(data)

    def close(self) -> None:
        """Ends the connection without a word."""
        self._transport.abort()

    shutdown = close


def _have_space(connections: set[Any], most: int, new: Connection | Handshake) -> bool:
    """Whether there is space for the new connection; closes connections that wait for their client to make it."""
    if len(connections) <= most:
        return True
    others = [each for each in connections if isinstance(each, Connection | Handshake) and each is not new]
    waiting = [each for each in others if each.waits_for_client]
    if not waiting:
        return False
    counts = Counter(each.address for each in others)
    address = max((each.address for each in waiting), key=lambda each: counts[each])
    of_one = [each for each in waiting if each.address == address]
    count = max(1, most // CLOSED_SHARE) if len(of_one) > most // 4 else 1
    for closed in nsmallest(count, of_one, lambda each: each.idle_since):
        closed.close()
        connections.discard(closed)
    return True


class _Server(uvicorn.Server):
    """A server that ends at SIGINT and SIGTERM once requests under way are answered, and does not raise them again."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept connections: few at once, though many may wait."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio has listened for as many as it accepts at once

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Lets SIGINT and SIGTERM end the server, while the context is open."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket, on a free port if `port` is 0; connections wait until the server runs.

    Raises ConfigurationError for an unavailable address.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"Expected an address that can be listened on. Received: {host}:{port}: {error}. Choose another --port."
        ) from error


def server(
    application: Application, most_connections: int, proxies: Sequence[str] = (), **tls: str | None
) -> uvicorn.Server:
    """A server to run with sockets: `server(...).run(sockets=[...])` ends at SIGINT and SIGTERM.

    The clients of a proxy whose address is in `proxies` are those that the header X-Forwarded-For names. A server that
    speaks TLS has `ssl_certfile`, a certificate chain, `ssl_keyfile`, its private key, both in PEM, and
    `ssl_keyfile_password`. Raises ConfigurationError for a certificate that cannot be used.
    """
    _allow_files(most_connections + OTHER_FILES)
    rounds = Rounds()
    config = uvicorn.Config(
        RoundRobin(application.asgi),
        http=cast(Any, partial(Connection, most_connections, rounds)),
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEADER_BYTES,
        ws="none",
        **cast(Any, tls),
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"Expected a certificate chain and its private key in PEM, by --ssl-certfile and --ssl-keyfile. Received: "
            f"{config.ssl_certfile}: {error}."
        ) from error
    if config.ssl is not None:
        config.http_protocol_class = cast(Any, partial(_with_tls, config.ssl, most_connections, rounds))
        config.ssl = None  # or asyncio makes the handshakes
    return _Server(config)


def _with_tls(context: ssl.SSLContext, *arguments: Any, **named: Any) -> Handshake:
    return Handshake(Connection(*arguments, **named), context)


def _allow_files(count: int) -> None:
    """Raises the limit of open files of this process to `count`, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
