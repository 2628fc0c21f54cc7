"""The transport of this process: set by the launcher's environment or by a strategy, one at a time."""

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from engine.errors import ConfigurationError
from ipu._internal.thread_values import ThreadValue

if TYPE_CHECKING:
    from ipu._internal.processes.transport import Transport

LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Environment variables of which MPI's launchers set at least one."""
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Environment variables with the number of processes that a launcher has started."""

_active: Transport | None = None
_alone = ThreadValue(False)


def alone() -> AbstractContextManager[bool]:
    """Gives variables values of their own in each process, while the context is open: others may not create them."""
    return _alone.replaced_by(True)


def is_alone() -> bool:
    """Whether this thread is inside `alone`."""
    return _alone.value


def active() -> Transport | None:
    """The transport in use; None before `initialise` and `activate`."""
    return _active


def initialise() -> Transport:
    """The transport in use; before there is one, MPI's under a launcher of MPI, or one of this process alone.

    Raises ConfigurationError under a launcher where mpi4py is not installed or does not know it, ProcessError for
    different versions.
    """
    if _active is not None:
        return _active
    from ipu._internal.processes.transport import SingleProcess  # not at the top: configuring needs no NumPy

    if not any(name in os.environ for name in LAUNCHERS):
        _check_size(1)
        return activate(SingleProcess())
    try:
        from ipu._internal.processes.mpi import MPITransport
    except (ImportError, RuntimeError) as error:  # mpi4py, or the library of MPI
        raise ConfigurationError(
            f"Expected mpi4py in a process that a launcher of MPI has started. Received: {error}. Install it: "
            f"pip install 'software-ipu[mpi]'."
        ) from error
    transport = MPITransport()
    _check_size(transport.size)
    return activate(transport)


def _check_size(size: int) -> None:
    """Raises ConfigurationError if the launcher started more processes than MPI finds: each would train alone."""
    started = max(int(os.environ.get(name, "1")) for name in SIZES)
    if started > size:
        raise ConfigurationError(
            f"Expected one group of {started} processes, as many as their launcher has started. Received: "
            f"{size}. Use the launcher of the MPI that mpi4py has, python -m ipu.run, or srun --mpi=pmix."
        )


def activate(transport: Transport) -> Transport:
    """Makes a transport the one in use; it is closed at exit. Raises ConfigurationError if another one is in use."""
    global _active
    if _active is not None and _active.size > 1 and transport is not _active:
        raise ConfigurationError(
            f"Expected one transport in a process. Received: {type(transport).__name__} beside "
            f"{type(_active).__name__} of {_active.size} processes. Use one kind of strategy."
        )
    _active = transport
    atexit.unregister(shut_down)
    atexit.register(shut_down)
    return transport


def shut_down() -> None:
    """Closes the transport in use, if there is one."""
    global _active
    closing, _active = _active, None
    if closing is not None:
        closing.close()


def required() -> Transport:
    """The transport in use. Raises ConfigurationError before there is one."""
    if _active is None:
        raise ConfigurationError("Expected a call of init() before. Received: none. Call it first in all processes.")
    return _active
