"""The start of MPI, which waits for all processes of a run, and raises an error if some never come."""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
from concurrent.futures import Future

import mpi4py

mpi4py.rc.initialize = False  # mpi4py would keep Python's lock meanwhile
mpi4py.rc.finalize = True
from mpi4py import MPI  # noqa: E402

from engine.errors import ProcessError  # noqa: E402
from ipu._internal.processes.signs import started_here, state_of  # noqa: E402
from ipu._internal.processes.time_limits import COLLECTIVE, SILENCE, time_limit  # noqa: E402

__all__ = ["MPI", "start"]
logger = logging.getLogger("ipu")


def start() -> None:
    """Initialises MPI, if the program has not. Raises ProcessError after a time limit.

    The limit is that of collectives, or that of silence if a process of this machine is stopped or not running.
    """
    if MPI.Is_initialized():
        return
    os.environ.setdefault("OMPI_MCA_osc", "^ucx")  # UCX prints errors if windows are created without its network
    started: Future[None] = Future()
    thread = threading.Thread(target=_initialise, args=(started,), daemon=True)
    thread.start()
    limit, interval, missing_before = time_limit(COLLECTIVE), time_limit(SILENCE) / 3, 0
    for count in itertools.count(1):
        thread.join(interval)
        if not thread.is_alive():
            started.result()
            MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)  # mpi4py makes them exceptions
            return
        missing = _missing()
        others = "; ".join(f"process {rank} {state}" for rank, state in missing.items()) or "others are not here yet"
        if _rank() == min(started_here().keys() - missing.keys(), default=_rank()):
            logger.warning("Process %d waits for all to start MPI for %.0f s: %s.", _rank(), count * interval, others)
        missing_before = missing_before + 1 if missing else 0
        if missing_before == 3 or count * interval > limit:
            raise ProcessError(
                f"Expected all processes to start MPI within {interval * 3 if missing else limit:g} seconds. Received: "
                f"{others}. Look for its error, or run the same program in all processes; "
                f"{SILENCE if missing else COLLECTIVE} in the environment sets another limit."
            )


def _initialise(started: Future[None]) -> None:
    try:
        ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        started.set_result(None)
    except BaseException as error:
        started.set_exception(error)


def _missing() -> dict[int, str]:
    """The processes of this machine that are stopped or not running, by rank, with their state in words."""
    here = started_here()
    size, local = (int(os.environ.get(f"OMPI_COMM_WORLD_{name}SIZE", "0")) for name in ("", "LOCAL_"))
    found = {rank: "is not running" for rank in range(size) if local == size and rank not in here}
    for rank, pids in here.items():
        if any((state_of(pid) or "T")[0] in "Tt" for pid in pids):
            found[rank] = "is stopped by a signal"
    return found


def _rank() -> int:
    return int(os.environ.get("PMIX_RANK", "0"))
