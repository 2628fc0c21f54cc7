"""Errors of exports and of the server, also of the classes that their callers catch."""

from __future__ import annotations

from engine.errors import ConfigurationError, IPUError


class ExportTypeError(ConfigurationError, TypeError):
    """An argument of an export has the wrong type."""


class RequestError(IPUError):
    """A request that the server refuses: `status` is the HTTP status, `message` the text for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
