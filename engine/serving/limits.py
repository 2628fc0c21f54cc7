"""Limits of the server for its clients: for one request, for all together, and for each client address."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits for one client, or for all together. Times are in seconds, sizes in bytes."""

    body_bytes: int = 32 << 20
    all_bodies_bytes: int = 256 << 20
    read_timeout: float = 30.0
    predict_timeout: float = 30.0
    concurrent_requests: int = 256
    waiting_batches: int = 4096
    batch_window: float = 0.001
    poll_period: float = 1.0
    """Seconds between two looks for new versions; 0 is never."""


class Shares:
    """Amount of something that the requests under way have, at most `most` together, by client address.

    One address has at most three quarters, so that others find some left.
    """

    def __init__(self, most: int) -> None:
        self.most, self.most_of_one = most, most - most // 4
        self.all = 0
        self._by_address: Counter[str] = Counter()

    def is_above(self, address: str, more: int) -> bool:
        """Whether an address has too much, with so much more."""
        return self._by_address[address] + more > self.most_of_one

    def add(self, address: str, count: int) -> None:
        """Adds `count`, which may be negative, to the amount of an address."""
        self.all += count
        self._by_address[address] += count
        if not self._by_address[address]:
            del self._by_address[address]
