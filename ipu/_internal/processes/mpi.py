"""Collectives on MPI, by mpi4py. Importing this file initialises MPI."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from types import TracebackType

import numpy as np
from mpi4py import MPI

from engine.errors import ProcessError
from ipu._internal.processes.failures import different_calls, failed_before, no_answer
from ipu._internal.processes.time_limits import COLLECTIVE, time_limit
from ipu._internal.processes.transport import Operation, Transport, digest_of
from ipu._internal.processes.versions import check_versions

SPINNING = 0.002
"""Seconds for which a process polls for the others before it sleeps between two polls."""
OPERATIONS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX, "product": MPI.PROD}
THE_END = "the end of the program"


class MPITransport(Transport):
    """The processes of MPI.COMM_WORLD. An error that ends one of them ends all."""

    def __init__(self) -> None:
        super().__init__()
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        self._limit = time_limit(COLLECTIVE)
        self._failed = False
        sys.excepthook = self._end_all
        check_versions(self._comm.allgather, self.rank)

    def _agree(self, call: str) -> None:
        if self._failed:
            raise failed_before(call)
        digest = digest_of(call)
        own = np.array([digest, -digest], np.int64)
        least = np.empty_like(own)
        self._wait(self._comm.Iallreduce(own, least, op=MPI.MIN), call)
        if least[0] != -least[1]:
            self._failed = True
            raise different_calls(self._comm.allgather(call))

    def _wait(self, request: MPI.Request, call: str) -> None:
        begin = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - begin
            if waited > self._limit and call != THE_END:
                self._failed = True
                raise no_answer(self.rank, self.size, self._limit, call)
            if waited > SPINNING:
                time.sleep(min(1e-4 + waited / 100, 0.02))

    def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
        if array.dtype.kind in "iuf" and array.dtype.itemsize > 2:
            self._comm.Allreduce(MPI.IN_PLACE, array, OPERATIONS[operation])
            return array
        return self._reduced_by_blocks(array, operation)

    def _all_to_all(self, blocks: np.ndarray) -> np.ndarray:
        parts = np.empty_like(blocks)
        self._comm.Alltoall(_bytes(blocks), _bytes(parts))
        return parts

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
