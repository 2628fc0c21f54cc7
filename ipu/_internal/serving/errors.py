"""Errors of exports and of the server, each also what its callers know it by."""

from __future__ import annotations

from engine.errors import ConfigurationError, IPUError


class ExportTypeError(ConfigurationError, TypeError):
    """An argument of an export that is of the wrong type."""


class RequestError(IPUError):
    """A request that the server refuses: `status` is the HTTP status, `message` what the client is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
