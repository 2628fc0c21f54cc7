"""Memory that the processes of one machine share, in a window of MPI."""

from __future__ import annotations

import ctypes

import numpy as np

from engine.machine_code.processor import X86
from engine.runtime.process_sums import Header, Rows, SharedRows
from ipu._internal.processes.mpi_start import MPI

__all__ = ["Rows", "shared_rows"]
HALF_BYTES = 1 << 20
"""Bytes of values that a process shows the others at once; MPI sums larger arrays as fast."""


def shared_rows(comm: MPI.Intracomm) -> SharedRows | None:
    """A row for each process; None for a process alone, for other processors, and where there is no space."""
    if comm.size == 1 or not X86:
        return None
    row_bytes = 8 * Header.WORDS + 2 * HALF_BYTES
    try:
        window = MPI.Win.Allocate_shared(row_bytes, 1, comm=comm)
        address = window.Shared_query(0)[0].address
    except MPI.Exception:
        address = 0
    has_window = np.array(address != 0)
    comm.Allreduce(MPI.IN_PLACE, has_window, MPI.LAND)
    if not has_window:
        return None
    memory = (ctypes.c_uint8 * (comm.size * row_bytes)).from_address(address)
    rows = np.ndarray((comm.size, row_bytes), np.uint8, memoryview(memory))
    rows[comm.rank, : 8 * Header.WORDS] = 0
    comm.Barrier()
    return SharedRows(rows, comm.rank)
