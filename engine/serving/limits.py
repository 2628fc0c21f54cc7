"""Limits of the server for its clients: for one request, for all together, and for each client address."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

STARTS_AT_ONCE = 2
"""Requests of one client address that begin in a round, before those of the next address."""


@dataclass(frozen=True)
class ClientLimits:
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
    """Amounts, by client address, of something that requests under way use; together they use at most `most`.

    One address has at most three quarters, so that others find some left.
    """

    def __init__(self, most: int) -> None:
        self.most, self.most_of_one = most, most - most // 4
        self.all = 0
        self._by_address: Counter[str] = Counter()

    def is_above(self, address: str, more: int) -> bool:
        """Whether an address has too much if it gets `more`."""
        return self._by_address[address] + more > self.most_of_one

    def add(self, address: str, count: int) -> None:
        """Adds `count`, which may be negative, to the amount of an address."""
        self.all += count
        self._by_address[address] += count
        if not self._by_address[address]:
            del self._by_address[address]


def network(client: tuple[str, int] | None) -> str:
    """The address by which a client is counted: of IPv6 the first 64 bits, as one person has all addresses below."""
    if client is None:
        return ""
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)


class Rounds:
    """Rounds of the event loop, in each of which every client address has a few turns, `STARTS_AT_ONCE`."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[], bool]]] = {}
        self._is_scheduled = False

    def takes(self, address: str) -> bool:
        """Whether an address has a turn left in this round, which it then takes."""
        self._schedule()
        if self._taken[address] >= STARTS_AT_ONCE:
            return False
        self._taken[address] += 1
        return True

    def wait(self, address: str, function: Callable[[], bool]) -> None:
        """Calls `function` in the next round that has a turn for the address; it returns whether it used it."""
        self._waiting.setdefault(address, deque()).append(function)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        self._taken.clear()
        for address, waiting in list(self._waiting.items()):
            while waiting and self._taken[address] < STARTS_AT_ONCE:
                self._taken[address] += waiting.popleft()()
            if not waiting:
                del self._waiting[address]
        if self._taken:
            self._schedule()


class RoundRobin:
    """An ASGI application that begins the requests of all client addresses in rounds, a few of each address in each.

    A client that sends requests on many connections delays the others by `STARTS_AT_ONCE` requests, not by all of its
    own: a connection is not read again before its request has been answered.
    """

    def __init__(self, application: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._application, self._rounds = application, Rounds()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Calls the application in a round that has space for a request of this address."""
        if scope["type"] == "http":
            address = network(scope.get("client"))
            if not self._rounds.takes(address):
                start = asyncio.get_running_loop().create_future()
                self._rounds.wait(address, partial(_begins, start))
                await start
        await self._application(scope, receive, send)


def _begins(start: asyncio.Future[None]) -> bool:
    if start.cancelled():
        return False
    start.set_result(None)
    return True
