"""Collectives on MPI, by mpi4py. Importing this file initialises MPI."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import numpy as np
from mpi4py import MPI

from engine.errors import ConfigurationError, ProcessError
from ipu._internal.processes.transport import Operation, Transport
from ipu._internal.processes.versions import check_versions

TIMEOUT = "SOFTWARE_IPU_COLLECTIVE_TIMEOUT"
"""The environment variable with the seconds for which a collective waits for other processes."""
SPINNING = 0.002
"""Seconds for which a process polls for the others before it sleeps between two polls."""
OPERATIONS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX, "product": MPI.PROD}
FOLDS: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "min": np.min, "max": np.max, "product": np.prod}
THE_END = "the end of the program"


class MPITransport(Transport):
    """The processes of MPI.COMM_WORLD. An error that ends one of them ends all."""

    def __init__(self) -> None:
        super().__init__()
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        self._limit = _time_limit()
        self._digests: dict[str, int] = {}
        self._failed = False
        sys.excepthook = self._end_all
        check_versions(self._comm.allgather, self.rank)

    def _agree(self, call: str) -> None:
        if self._failed:
            raise ProcessError(
                f"Expected processes that call the same collectives. Received: {call}, after one that failed. "
                f"Restart the run."
            )
        if call not in self._digests:
            digest = hashlib.blake2b(call.encode(), digest_size=7).digest()
            self._digests[call] = int.from_bytes(digest, "big")
        own = np.array([self._digests[call], -self._digests[call]], np.int64)
        least = np.empty_like(own)
        self._wait(self._comm.Iallreduce(own, least, op=MPI.MIN), call)
        if least[0] != -least[1]:
            self._failed = True
            calls = self._comm.allgather(call)
            raise ProcessError(
                "Expected all processes to call the same collectives in the same order. Received: "
                f"{'; '.join(f'{each} in process {rank}' for rank, each in enumerate(calls))}. Run the same program "
                f"with as many steps of the same batch size in all processes."
            )

    def _wait(self, request: MPI.Request, call: str) -> None:
        begin = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - begin
            if waited > self._limit and call != THE_END:
                self._failed = True
                raise ProcessError(
                    f"Expected all {self.size} processes within {self._limit:g} seconds at {call}. Received: no answer "
                    f"in process {self.rank}. Look for the process that hangs or computes alone; {TIMEOUT} in the "
                    f"environment sets another limit."
                )
            if waited > SPINNING:
                time.sleep(min(1e-4 + waited / 100, 0.02))

    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        if array.dtype.kind in "iuf" and array.dtype.itemsize > 2:
            self._comm.Allreduce(MPI.IN_PLACE, array, OPERATIONS[operation])
            return array
        return self._reduced_by_blocks(array, operation)

    def _reduced_by_blocks(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        """The same for types that MPI lacks, in the order of ranks: each process reduces a block, in float32."""
        blocks = np.zeros((self.size, -(-array.size // self.size)), array.dtype)
        blocks.reshape(-1)[: array.size] = array.reshape(-1)
        parts = np.empty_like(blocks)
        self._comm.Alltoall(_bytes(blocks), _bytes(parts))
        wide = parts.astype(np.float32 if parts.dtype.kind not in "biu" else np.int64)
        own = FOLDS[operation](wide, axis=0).astype(array.dtype)
        return self._all_gather(own).reshape(-1)[: array.size].reshape(array.shape)

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        result = np.empty((self.size, *array.shape), array.dtype)
        self._comm.Allgather(_bytes(array), _bytes(result))
        return result

    def _broadcast(self, array: np.ndarray, root: int) -> np.ndarray:
        self._comm.Bcast(_bytes(array), root)
        return array

    def close(self) -> None:
        """Waits for all processes; those in a collective raise ProcessError. Does nothing after a failure."""
        if not (self._failed or MPI.Is_finalized()):
            with contextlib.suppress(ProcessError):
                self._agree(THE_END)

    def _end_all(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:  # pragma: no cover - ends the process
        """Prints an error that nothing has caught, and ends all processes, which would wait for this one."""
        traceback.print_exception(kind, error, where)
        sys.stderr.flush()
        sys.stdout.flush()
        self._comm.Abort(1)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _time_limit() -> float:
    text = os.environ.get(TIMEOUT, "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigurationError(f"Expected {TIMEOUT} to be a number of seconds above 0. Received: {text!r}.")
    return seconds
