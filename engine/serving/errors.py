"""The error of requests that the server refuses."""

from __future__ import annotations

from engine.errors import IPUError


class RequestError(IPUError):
    """A request that the server refuses: `status` is the HTTP status, `message` the text for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
