"""The rings behind a program's queues, from call to call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.errors import ConfigurationError
from engine.ir.device_operations import QueueSignature
from engine.machine_code.abi import c_function
from engine.program.control_words import CallBlock
from engine.program.program import Buffer, ProgramQueue
from engine.runtime.executor import State
from engine.runtime.rings import AnyRing, InfeedRing
from engine.runtime.workers import pauses_before_sleep


def check_rings(queues: Mapping[str, QueueSignature], rings: Mapping[str, AnyRing]) -> None:
    """Raises ConfigurationError unless each queue has its own ring, of its direction, shapes and dtypes."""
    for name, wanted in queues.items():
        expected = f"an {wanted.direction} ring of ({', '.join(map(str, wanted.shapes))}) for queue {name!r}"
        ring = rings.get(name)
        if ring is None:
            known = ", ".join(sorted(rings)) or "none"
            raise ConfigurationError(f"Expected {expected}. Received: no ring; there are rings for: {known}.")
        direction = "infeed" if isinstance(ring, InfeedRing) else "outfeed"
        if direction != wanted.direction or ring.shapes != wanted.shapes:
            received = f"an {direction} ring of ({', '.join(map(str, ring.shapes))})"
            raise ConfigurationError(f"Expected {expected}. Received: {received}. Make the ring of the queue's shapes.")
    used = [rings[name] for name in queues]
    if len({id(ring) for ring in used}) < len(used):
        raise ConfigurationError("Expected a ring of its own for each queue. Received: one ring for several queues.")


def words_of_call(state: np.ndarray) -> np.ndarray:
    """The words of the call block of a call with this state block."""
    words = np.zeros(CallBlock.WORDS, np.int64)
    offsets = {CallBlock.STOP: State.STOP, CallBlock.LEAVE_AT: State.LEAVE_AT, CallBlock.PASSED: State.ARRIVALS}
    for word, offset in (offsets | {CallBlock.ABORT: State.ABORT}).items():
        words[word] = state.ctypes.data + 8 * offset
    words[CallBlock.PAUSES], words[CallBlock.NAP] = pauses_before_sleep(), c_function("usleep")
    return words


class BoundQueues:
    """The `rings` of a program's queues, by name, and its call block, if any, through which codelets see the call."""

    def __init__(self, queues: Mapping[str, ProgramQueue], call: Buffer | None) -> None:
        self._queues, self._call_block = dict(queues), call
        self._is_bound = False
        self._signatures = {name: queue.signature for name, queue in queues.items()}
        self.rings: dict[str, AnyRing] = {}
        self._call = np.zeros(CallBlock.WORDS, np.int64)

    def bind(self, rings: Mapping[str, AnyRing]) -> dict[Buffer, int]:
        """Returns addresses that parameter blocks lack so far; raises ConfigurationError for rings that do not fit."""
        if self._is_bound and all(rings.get(n) is r for n, r in self.rings.items()):
            return {}
        check_rings(self._signatures, rings)
        self.rings, self._is_bound = {name: rings[name] for name in self._queues}, False
        addresses = {} if self._call_block is None else {self._call_block: int(self._call.ctypes.data)}
        for name, queue in self._queues.items():
            ring = self.rings[name]
            addresses[queue.control] = ring.address
            addresses |= dict(zip(queue.leaves, ring.leaf_addresses, strict=True))
        return addresses

    @property
    def call_block(self) -> np.ndarray | None:
        """The words of the call block, to be set to `words_of_call`; None for a program without one."""
        return None if self._call_block is None else self._call

    def note_bound(self) -> None:
        """Records that blocks have the addresses that `bind` returned: until then, each call returns them."""
        self._is_bound = True

    def begin(self, state: np.ndarray) -> None:
        """Prepares rings and call block for a call with this state block."""
        if self._call_block is None:
            return
        self._call[...] = words_of_call(state)
        for ring in self.rings.values():
            ring.begin()

    def end(self) -> None:
        """Settles the rings after a call, however it ended."""
        for ring in self.rings.values():
            ring.settle()

    def raise_if_ended(self) -> None:
        """Raises the error of a ring that the program has found closed."""
        for ring in self.rings.values():
            if ring.ended:
                raise ring.error
