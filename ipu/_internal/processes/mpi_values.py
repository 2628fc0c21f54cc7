"""JSON values over MPI, as buffers of bytes: mpi4py's calls for objects would unpickle bytes of another process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ipu._internal.processes.mpi_start import MPI

MOST_BYTES = 1 << 20
"""Most bytes of a message's value: a line of a program, the name of a call."""


def encoded(value: Any) -> np.ndarray:
    """The bytes of a value's JSON, uint8 [bytes]."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def decoded(content: np.ndarray) -> Any:
    """The JSON value of an array of bytes; None for no bytes. Raises ValueError for bytes that are no JSON."""
    return json.loads(content.tobytes()) if content.size else None


def all_gather_values(comm: MPI.Comm, value: Any) -> list[Any]:
    """The values of all processes, by rank."""
    own = encoded(value)
    sizes = np.empty(comm.size, np.int64)
    comm.Allgather(np.array([own.size], np.int64), sizes)
    parts = np.empty(int(sizes.sum()), np.uint8)
    comm.Allgatherv(own, [parts, sizes.tolist()])
    return [decoded(part) for part in np.split(parts, np.cumsum(sizes)[:-1])]


def received(comm: MPI.Comm, tag: int) -> list[tuple[int, Any]]:
    """The values of the messages of a tag that have come, by their senders' ranks; others than JSON are dropped."""
    found, status = [], MPI.Status()
    while comm.Iprobe(MPI.ANY_SOURCE, tag, status):
        content = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        comm.Recv(content, status.source, tag)
        if content.size <= MOST_BYTES:
            found.append((status.source, decoded(content)))
    return found
