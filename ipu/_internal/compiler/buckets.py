"""Sums of arrays over processes: at once, or in buckets while the program continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.host_functions import PythonFunction
from ipu._internal.processes.transport import IN_PLACE, SPINNING, Transport, described, digest_of


class Bucket:
    """Arrays of fixed types and shapes that are summed together: the transport is called once for each dtype.

    float32 arrays are converted to the type `rounded` first, unless that is None.
    """

    def __init__(self, arrays: Sequence[np.ndarray], rounded: type | None = None) -> None:
        self._dtypes = [array.dtype for array in arrays]
        self._buffers: list[np.ndarray] = []
        self._parts = list(arrays)
        for dtype in dict.fromkeys(self._dtypes):
            numbers = [number for number, each in enumerate(self._dtypes) if each == dtype]
            kind = np.dtype(rounded) if rounded and dtype == np.float32 else dtype
            self._buffers.append(np.empty(sum(arrays[number].size for number in numbers), kind))
            ends = np.cumsum([arrays[number].size for number in numbers])
            for number, part in zip(numbers, np.split(self._buffers[-1], ends[:-1]), strict=True):
                self._parts[number] = part.reshape(arrays[number].shape)

    def take(self, arrays: Sequence[np.ndarray]) -> None:
        """Copies the values."""
        for part, array in zip(self._parts, arrays, strict=True):
            part[...] = array

    def reduce(self, transport: Transport, name: str) -> None:
        """Replaces the values by their sums over the processes."""
        for buffer in self._buffers:
            transport.all_reduce_in_place(buffer, name)

    def sums(self) -> list[np.ndarray]:
        """The values, of the arrays' own types."""
        return [part.astype(dtype, copy=False) for part, dtype in zip(self._parts, self._dtypes, strict=True)]


class Buckets:
    """The buckets of one program, which all processes begin and end in the same order."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self._name = transport, name
        self._known: dict[tuple, Bucket] = {}
        self._begun: dict[int, tuple[Bucket, Callable[[], None]]] = {}

    def all_reduce(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The sums of arrays, at once."""
        bucket = self._taken(-1, arrays, None)
        bucket.reduce(self._transport, self._name)
        return bucket.sums()

    def all_reduce_function(self) -> PythonFunction:
        """The function `all_reduce` for programs, which uses memory that processes share if the arrays fit into it."""
        name, transport = "all-reduce of processes", self._transport
        if transport.shared is None:
            return PythonFunction(name, self.all_reduce)
        from engine.runtime.process_sums import ProcessSum

        def described_sum(count: int) -> str:
            return described(IN_PLACE, "float32", [count], self._name)

        def digest(count: int) -> int:
            return digest_of(described_sum(count))

        def in_shared_memory(*arrays: np.ndarray) -> list[np.ndarray]:
            ends = np.cumsum([array.size for array in arrays])
            total = transport.sum_in_shared_memory(arrays, described_sum(int(ends[-1])))
            parts = np.split(total, ends[:-1])
            return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]

        transport.shared.wait_for(SPINNING)
        return ProcessSum(name, self.all_reduce, in_shared_memory, transport.shared, digest, transport.count_codelets)

    def beginning(self, rounded: type | None = None) -> Callable[..., list[np.ndarray]]:
        """A function that takes the number of a bucket and its arrays, and begins to sum them."""

        def begin(number: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
            if old := self._begun.pop(int(number), None):  # an error has ended the step before `end`
                old[1]()
            bucket, name = self._taken(int(number), arrays, rounded), f"bucket {number} {self._name}"
            ended = self._transport.in_background(lambda: bucket.reduce(self._transport, name))
            self._begun[int(number)] = bucket, ended
            return []

        return begin

    def end(self, count: np.ndarray) -> list[np.ndarray]:
        """Waits for the sums of `count` buckets, and returns them."""
        found: list[np.ndarray] = []
        for number in range(int(count)):
            bucket, ended = self._begun.pop(number)
            ended()
            found += bucket.sums()
        return found

    def _taken(self, number: int, arrays: Sequence[np.ndarray], rounded: type | None) -> Bucket:
        key = (number, *((array.dtype, array.shape) for array in arrays))
        if key not in self._known:
            self._known[key] = Bucket(arrays, rounded)
        self._known[key].take(arrays)
        return self._known[key]
