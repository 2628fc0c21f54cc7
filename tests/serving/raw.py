"""Requests to a server, both whole ones and requests that no client library sends."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Mapping

from tests.interrupting import PATIENCE_SECONDS


def posted(port: int, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by names in small letters, and content of the answer to a POST."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", path, body, dict(headers))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def sent(port: int, content: bytes) -> bytes:
    """All that the server answers to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        with contextlib.suppress(OSError):  # the server may answer, and close, before it has read all
            connection.sendall(content)
        parts = []
        with contextlib.suppress(OSError):
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts)
