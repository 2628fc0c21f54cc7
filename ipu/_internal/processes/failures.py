"""Errors of collectives, in the same words for all transports."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import ProcessError
from ipu._internal.processes.time_limits import COLLECTIVE


def different_calls(calls: Sequence[str]) -> ProcessError:
    """The error for processes that call different collectives; `calls` by rank."""
    return ProcessError(
        "Expected all processes to call the same collectives in the same order. Received: "
        f"{'; '.join(f'{each} in process {rank}' for rank, each in enumerate(calls))}. Run the same program "
        f"with as many steps of the same batch size in all processes."
    )


def no_answer(rank: int, size: int, seconds: float, call: str) -> ProcessError:
    """The error for a time limit that has passed."""
    return ProcessError(
        f"Expected all {size} processes within {seconds:g} seconds at {call}. Received: no answer "
        f"in process {rank}. Look for the process that hangs or computes alone; {COLLECTIVE} in the "
        f"environment sets another limit."
    )


def failed_before(call: str) -> ProcessError:
    """The error for a collective after one that failed."""
    return ProcessError(
        f"Expected processes that call the same collectives. Received: {call}, after one that failed. Restart the run."
    )
