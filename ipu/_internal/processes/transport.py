"""Collectives between processes on NumPy arrays: the interface of a transport, which each implementation derives from.

All processes call the same operations in the same order. Each call is compared first, so that programs that differ
raise an error where they part, not a deadlock or a wrong number.
"""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.errors import InternalError
from engine.single_thread import SingleThread

if TYPE_CHECKING:
    from engine.runtime.process_sums import SharedRows
    from ipu._internal.processes.watch import CollectiveWatch

Operation = Literal["sum", "min", "max", "product"]
IN_PLACE = "all_reduce in place"
SPINNING = 0.002
"""Seconds for which a process polls for the others before it sleeps between two polls."""
FOLDS: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "min": np.min, "max": np.max, "product": np.prod}


class Background(SingleThread):
    """Calls that one thread executes in order. It does not keep the interpreter alive."""

    def __init__(self) -> None:
        super().__init__("collectives")
        self._latest: Future[Any] | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Executes a call after those before it. The future has the error that ended the thread, if it has ended."""
        self._latest = super().submit(function, *arguments, **named)
        return self._latest

    def wait(self) -> None:
        """Returns once all calls have ended, however they did."""
        if self._latest is not None:
            wait([self._latest])

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the one that executes the calls."""
        return threading.current_thread() is self._thread


class Transport(ABC):
    """The processes of a run, as one of them sees them: number `rank` of `size`.

    `local_rank` and `local_size` count those on the same machine. `seconds` is the time that the program has spent in
    collectives, including waits for other processes. `background_seconds` is the same for the thread beside the
    program, and `bytes` are the bytes of the arrays of both. The parameter `name` of the methods tells apart calls on
    equal shapes. All methods raise ProcessError if processes call different operations, if another one has ended, and
    after a time limit.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1
    watch: CollectiveWatch | None = None
    shared: SharedRows | None = None
    """Memory through which codelets sum, where all processes are on one machine."""

    def __init__(self) -> None:
        self.seconds, self.background_seconds, self.bytes = 0.0, 0.0, 0
        self._background = Background()

    def in_background(self, call: Callable[[], None]) -> Callable[[], None]:
        """Begins a call of collectives in a thread, after earlier ones; the result waits for it, and raises its error.

        Other collectives wait for those of the thread.
        """
        future = self._background.submit(call)

        def wait() -> None:
            begin = time.perf_counter()
            try:
                future.result()
            finally:
                self.seconds += time.perf_counter() - begin

        return wait

    def all_reduce(self, array: np.ndarray, operation: Operation = "sum", name: str = "") -> np.ndarray:
        """The sum, minimum, maximum or product of the processes' arrays, of one shape and dtype; equal on all."""
        with self._call(f"all_reduce {operation}", array, name):
            return self._all_reduce(np.array(array, order="C"), operation)

    def all_reduce_in_place(self, array: np.ndarray, name: str = "") -> None:
        """Replaces a contiguous array by the sum of the processes' arrays."""
        with self._call(IN_PLACE, array, name):
            result = self._all_reduce(array, "sum")
        if result is not array:
            array[...] = result

    def all_gather(self, array: np.ndarray, name: str = "") -> np.ndarray:
        """[size, ...]: the processes' arrays, of one shape and dtype, in the order of ranks."""
        with self._call("all_gather", array, name):
            return self._all_gather(np.ascontiguousarray(array).reshape(array.shape))

    def all_gather_rows(self, array: np.ndarray, name: str = "") -> np.ndarray:
        """The processes' arrays concatenated along the first dimension, the only one in which they may differ."""
        rows = self.all_gather(np.array(len(array)), f"rows of {array.dtype}{list(array.shape[1:])} {name}")
        padded = np.zeros((int(rows.max(initial=0)), *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        return np.concatenate([part[:n] for part, n in zip(self.all_gather(padded, name), rows, strict=True)])

    def broadcast(self, array: np.ndarray, root: int = 0, name: str = "") -> np.ndarray:
        """The array of process `root`; the others give one of its shape and dtype."""
        with self._call(f"broadcast from {root}", array, name):
            return self._broadcast(np.array(array, order="C"), root)

    def sum_in_shared_memory(self, arrays: Sequence[np.ndarray], call: str) -> np.ndarray:
        """The sums of float32 arrays that fit into `shared`, flat; a codelet may have published the call before."""
        raise InternalError("Expected memory that the processes share. Received: none.")

    def count_codelets(self) -> None:
        """Adds the bytes and seconds that codelets have spent in collectives since the last call."""
        if self.shared is not None:
            seconds, size = self.shared.taken_counts()
            self.seconds += seconds
            self.bytes += size

    def reduce_scatter(self, array: np.ndarray, operation: Operation = "sum", name: str = "") -> np.ndarray:
        """Block `rank` along the first dimension, which `size` must divide, of the reduced array."""
        rows = len(array) // self.size
        return self.all_reduce(array, operation, f"reduce_scatter {name}")[self.rank * rows : (self.rank + 1) * rows]

    def barrier(self, name: str = "") -> None:
        """Returns once all processes have called it."""
        with self._call("barrier", np.zeros(0, np.uint8), name):
            pass

    @contextmanager
    def _call(self, operation: str, array: np.ndarray, name: str) -> Iterator[None]:
        if not self._background.is_current:
            self._background.wait()
        call = described(operation, array.dtype, array.shape, name)
        with self._followed(call, array.nbytes):
            self._agree(call)
            yield

    @contextmanager
    def _followed(self, call: str, size: int) -> Iterator[None]:
        """Counts the seconds and bytes of a call, which the watch follows."""
        begin, beside = time.perf_counter(), self._background.is_current
        if self.watch is not None:
            self.watch.begin(call)
        try:
            yield
        finally:
            if self.watch is not None:
                self.watch.end()
            seconds = time.perf_counter() - begin
            self.seconds += 0 if beside else seconds
            self.background_seconds += seconds if beside else 0
            self.bytes += size

    @abstractmethod
    def _agree(self, call: str) -> None:
        """Waits until all processes are at a call; raises ProcessError unless it is the same one."""

    @abstractmethod
    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        """Reduces as `all_reduce` does; may overwrite `array`, which is contiguous, and return it."""

    def _reduced_by_blocks(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        """Reduces any type: each process reduces a block, by ranks, 16-bit floats in float32."""
        blocks = np.zeros((self.size, -(-array.size // self.size)), array.dtype)
        blocks.reshape(-1)[: array.size] = array.reshape(-1)
        parts = self._all_to_all(blocks)
        wide = parts.astype(np.float32) if parts.dtype.itemsize == 2 and parts.dtype.kind not in "iu" else parts
        own = FOLDS[operation](wide, axis=0).astype(array.dtype)
        return self._all_gather(own).reshape(-1)[: array.size].reshape(array.shape)

    @abstractmethod
    def _all_to_all(self, blocks: np.ndarray) -> np.ndarray:
        """[size, ...]: block `rank` of the contiguous `blocks`, [size, ...], of each process."""

    @abstractmethod
    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        """Gathers a contiguous array as `all_gather` does."""

    @abstractmethod
    def _broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        """Broadcasts as `broadcast` does; may overwrite `array`, which is contiguous, and return it."""

    @abstractmethod
    def close(self) -> None:
        """Ends the communication, once all processes call it."""


class SingleProcess(Transport):
    """One process alone."""

    def _agree(self, call: str) -> None:
        """Does nothing: one process has no other call to compare with."""

    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        return array

    def _all_to_all(self, blocks: np.ndarray) -> np.ndarray:
        return blocks

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return array[None]

    def _broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        return array

    def close(self) -> None:
        """Does nothing: one process has no connection to end."""


def described(operation: str, dtype: object, shape: Sequence[int], name: str) -> str:
    """A call as errors show it, equal in all processes."""
    return f"{operation} of {dtype}{list(shape)} {name}".rstrip()


@lru_cache(maxsize=4096)
def digest_of(call: str) -> int:
    """A positive number of 56 bits for the description of a call."""
    return int.from_bytes(hashlib.blake2b(call.encode(), digest_size=7).digest(), "big")
