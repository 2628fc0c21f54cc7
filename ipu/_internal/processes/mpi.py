"""Collectives on MPI, by mpi4py."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from types import TracebackType

import numpy as np

from engine.errors import ProcessError
from ipu._internal.processes.failures import different_calls, failed_before
from ipu._internal.processes.mpi_start import MPI, start
from ipu._internal.processes.mpi_values import all_gather_values, encoded, received
from ipu._internal.processes.output import report_event
from ipu._internal.processes.shared_memory import Rows, shared_rows
from ipu._internal.processes.signs import Sign
from ipu._internal.processes.transport import SPINNING, Operation, Transport, digest_of
from ipu._internal.processes.versions import check_versions
from ipu._internal.processes.watch import CollectiveWatch, Link

OPERATIONS = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX, "product": MPI.PROD}
THE_END = "the end of the program"


class MPITransport(Transport):
    """The processes of MPI.COMM_WORLD. An error that ends one of them ends all."""

    def __init__(self) -> None:
        super().__init__()
        start()
        report_event("begin")
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        local = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.local_rank, self.local_size = local.rank, local.size
        self._failed = False
        sys.excepthook = self._end_all
        check_versions(partial(all_gather_values, self._comm), self.rank)
        pids = dict(all_gather_values(local, (self.rank, os.getpid())))
        self.shared = shared_rows(self._comm) if self.local_size == self.size else None
        self._messages = Messages()
        self.watch: CollectiveWatch = CollectiveWatch(self.rank, self.size, self._messages, pids, unlimited=THE_END)

    def _agree(self, call: str) -> None:
        if self._failed:
            raise failed_before(call)
        digest = digest_of(call)
        if self.shared is not None:
            self.shared.publish(digest)  # processes that wait there learn that this one is here
        own = np.array([digest, -digest], np.int64)
        least = np.empty_like(own)
        self._wait(self._comm.Iallreduce(own, least, op=MPI.MIN).Test)
        if least[0] != -least[1]:
            self._fail()
            raise different_calls(all_gather_values(self._comm, call))
        if self.shared is not None:
            self.shared.complete()

    def _fail(self) -> None:
        self._failed = True
        if self.shared is not None:
            self.shared.leave_to_host()

    def _wait(self, is_over: Callable[[], bool]) -> None:
        begin = time.monotonic()
        try:
            while not is_over():
                waited = time.monotonic() - begin
                if self.watch.error is not None:
                    raise self.watch.error
                if waited > SPINNING or self._background.is_current:  # which leaves the core to the program
                    time.sleep(min(1e-4 + waited / 100, 0.02))
        except BaseException:  # also an interrupt: other processes go on with the call, which this one leaves
            self._fail()
            raise

    def in_background(self, call: Callable[[], None]) -> Callable[[], None]:
        """Starts a call in the background, as each transport does; codelets leave their collectives to the host
        meanwhile.
        """
        shared = self.shared
        if shared is None:
            return super().in_background(call)
        shared.words[Rows.BEGUN] += 1

        def counted() -> None:
            try:
                call()
            finally:
                shared.words[Rows.ENDED] += 1

        return super().in_background(counted)

    def sum_in_shared_memory(self, arrays: Sequence[np.ndarray], call: str) -> np.ndarray:
        """The sums of float32 arrays that fit into `shared`, flat; a codelet may have published the call before."""
        shared, digest = self.shared, digest_of(call)
        assert shared is not None
        self._background.wait()
        with self._followed(call, sum(array.nbytes for array in arrays)):
            if self._failed:
                raise failed_before(call)
            try:
                shared.publish(digest, arrays)
                self._wait(shared.all_published)
                if not shared.is_same(digest):
                    self._agree(call)
            except BaseException:
                self._fail()
                raise
            total = shared.sums(sum(array.size for array in arrays))
            shared.complete()
        return total

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
            self._background.wait()
            self.watch.begin(THE_END)
            try:
                self._agree(THE_END)
            except ProcessError:
                if self.watch.error is not None:  # the end of MPI would wait for the process that is stopped
                    self._messages.end_all(self.watch.error)
        self.watch.close()
        report_event("end")

    def _end_all(
        self, kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:  # pragma: no cover - ends the process
        """Prints an error that nothing has caught, and ends all processes, which would wait for this one."""
        sys.stdout.flush()
        sys.stderr.write("".join(traceback.format_exception(kind, error, where)))  # at once: lines stay together
        report_event("abort")
        self._comm.Abort(1)


class Messages(Link):
    """Questions for signs, and the answers, as messages of MPI."""

    ASK, ANSWER = 1, 2

    def __init__(self) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self._sent: list[tuple[MPI.Request, np.ndarray]] = []
        """Messages on the way, with their bytes, which MPI reads meanwhile."""

    def ask(self, ranks: Iterable[int]) -> None:
        """Sends messages to processes, which may never receive them."""
        for rank in ranks:
            self._send(np.empty(0, np.uint8), rank, self.ASK)

    def answers(self, own: Callable[[], Sign]) -> list[tuple[int, Sign]]:
        """Returns the signs that have come, by rank. Sends the own sign to processes that have asked for it."""
        self._sent = [each for each in self._sent if not each[0].Test()]
        for rank, _ in received(self._comm, self.ASK):
            self._send(encoded(asdict(own())), rank, self.ANSWER)
        return [(rank, Sign(**fields)) for rank, fields in received(self._comm, self.ANSWER)]

    def end_all(self, error: ProcessError) -> None:
        """Prints an error and ends all processes."""
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        report_event("abort")
        self._comm.Abort(1)

    def _send(self, content: np.ndarray, rank: int, tag: int) -> None:
        self._sent.append((self._comm.Isend(content, rank, tag), content))


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
