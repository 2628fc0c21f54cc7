"""Device memory that outlives a call: one buffer for each variable."""

from __future__ import annotations

from threading import Lock

import numpy as np

from engine.ir.shape import Shape

ALIGNMENT = 64
SLAB_BYTES = 1 << 24
"""NumPy asks Linux for 2 MB pages where an array has 4 MB or more: with small pages, weights and packed operands cost
repeated page table walks, and conflict in the second-level cache by chance."""
LEAST_POOLED, MOST_POOLED = 1 << 15, 1 << 22
"""Range of bytes of arrays that share a slab, its end excluded: from 4 MiB on, NumPy asks for large pages itself."""


class _Slab:
    """Memory from which smaller arrays are allocated one after the other; it lives as long as any of them."""

    def __init__(self) -> None:
        self.rest, self.lock = np.zeros(0, np.uint8), Lock()

    def take(self, nbytes: int) -> np.ndarray:
        with self.lock:
            if self.rest.size < nbytes + ALIGNMENT:
                self.rest = np.zeros(SLAB_BYTES, np.uint8)
            taken = _aligned(self.rest, nbytes)
            self.rest = self.rest[-self.rest.ctypes.data % ALIGNMENT + nbytes :]
            return taken


_slab = _Slab()


def _aligned(raw: np.ndarray, nbytes: int) -> np.ndarray:
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def aligned_zeros(nbytes: int) -> np.ndarray:
    """A zeroed uint8 array, 64-byte aligned (denormal garbage would cost 150x)."""
    if LEAST_POOLED <= nbytes < MOST_POOLED:
        return _slab.take(nbytes)
    return _aligned(np.zeros(nbytes + ALIGNMENT, np.uint8), nbytes)


def aligned_copy(value: np.ndarray | None) -> np.ndarray:
    """Copies a constant's value into aligned memory of at least ALIGNMENT bytes."""
    assert value is not None
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    memory = aligned_zeros(max(raw.size, ALIGNMENT))
    memory[: raw.size] = raw
    return memory


class DeviceBuffer:
    """The device's copy of one variable: aligned memory at an address that never changes."""

    writer: object = None
    """Identifies the executable, and its variable, that wrote a large buffer last; None after `write`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._memory = aligned_zeros(max(shape.bytes, ALIGNMENT))
        self.address: int = self._memory.ctypes.data
        self._value = self._memory[: shape.bytes].view(shape.dtype).reshape(shape.dimensions)

    @property
    def value(self) -> np.ndarray:
        """The value itself, in the variable's shape."""
        return self._value

    def read(self) -> np.ndarray:
        """A copy of the value, in the variable's shape."""
        return self._value.copy()

    def read_into(self, memory: np.ndarray | None) -> np.ndarray:
        """Copies the value to `memory` if shape and dtype are equal, else to a new array; returns the copy."""
        if memory is None or memory.shape != self._value.shape or memory.dtype != self._value.dtype:
            return self._value.copy()
        memory[...] = self._value
        return memory

    def write(self, value: np.ndarray) -> None:
        """Replaces the value; raises ValueError when shape or dtype differ."""
        if value.shape != self._value.shape or value.dtype != self._value.dtype:
            raise ValueError(f"Expected a value of {self.shape}. Received: {value.dtype}{list(value.shape)}.")
        self._value[...] = value
        self.writer = None

    def begins_with(self, other: DeviceBuffer) -> bool:
        """Whether this value's first bytes equal all bytes of another one."""
        size = other.shape.bytes
        words = size // 8 * 8
        mine, its = self._memory[:size], other._memory[:size]
        same = np.array_equal(mine[:words].view(np.uint64), its[:words].view(np.uint64))
        return same and np.array_equal(mine[words:], its[words:])
