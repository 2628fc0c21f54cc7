"""The error of requests that the server refuses."""

from __future__ import annotations

from engine.errors import IPUError

MOST_CHARACTERS = 2000
"""Most characters of a message: names in a request may be as long as its body."""


class RequestError(IPUError):
    """A request that the server refuses: `status` is the HTTP status, `message` the text for the client."""

    def __init__(self, status: int, message: str) -> None:
        cut = message if len(message) <= MOST_CHARACTERS else f"{message[:MOST_CHARACTERS]}..."
        super().__init__(cut)
        self.status, self.message = status, cut
