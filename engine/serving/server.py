"""Runs the application on uvicorn: its own socket, limits on connections, a graceful shutdown."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.errors import ConfigurationError
from engine.serving.application import Application

logger = logging.getLogger("ipu.serving")
HEADER_TIMEOUT = 10.0
"""Seconds within which a new connection must have sent the head of a request."""

GRACE = 10
"""Seconds that running requests get when the server stops."""

HEADER_BYTES = 64 << 10
BACKLOG = 1024
"""Connections that may wait to be accepted."""


class PromptProtocol(H11Protocol):
    """Closes connections that never send a request, which would block others."""

    def connection_made(self, transport: Any) -> None:
        """Starts the timeout for a request."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEADER_TIMEOUT, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timeout."""
        self._patience.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket, on a free port if `port` is 0; connections wait until the server runs.

    Raises ConfigurationError for an unavailable address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"Expected an address that can be listened on. Received: {host}:{port}: {error}. Choose another --port."
        ) from error
    return listener


def server(application: Application, most_connections: int) -> uvicorn.Server:
    """A server to run with sockets: `server(...).run(sockets=[...])` ends at SIGINT and SIGTERM."""
    config = uvicorn.Config(
        application.asgi,
        http=PromptProtocol,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=most_connections,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEADER_BYTES,
        ws="none",
    )
    return uvicorn.Server(config)


def serve(application: Application, listener: socket.socket, most_connections: int) -> None:
    """Serves until SIGINT or SIGTERM."""
    with asyncio.Runner() as runner:
        runner.run(server(application, most_connections).serve(sockets=[listener]))
