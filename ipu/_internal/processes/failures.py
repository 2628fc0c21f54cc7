"""Errors of collectives, in the same words for all transports."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import ProcessError
from ipu._internal.processes.time_limits import COLLECTIVE, SILENCE


def different_calls(calls: Sequence[str]) -> ProcessError:
    """The error for processes that call different collectives; `calls` by rank."""
    return ProcessError(
        "Expected all processes to call the same collectives in the same order. Received: "
        f"{'; '.join(f'{each} in process {rank}' for rank, each in enumerate(calls))}. Run the same program "
        "with as many steps of the same batch size in all processes: dataset.shard(processes, index), then "
        "batch(size, drop_remainder=True) and take(steps) with the least number of steps."
    )


def no_answer(size: int, seconds: float, call: str, others: str, variable: str = COLLECTIVE) -> ProcessError:
    """The error for a time limit that has passed; `others` describes the other processes, `variable` sets the limit."""
    return ProcessError(
        f"Expected all {size} processes within {seconds:g} seconds at {call}. Received: {others}. Look for the process "
        f"that hangs or computes alone; {variable} in the environment sets another limit."
    )


def no_sign(size: int, seconds: float, call: str, others: str) -> ProcessError:
    """The error for a process that is stopped, or on a machine that cannot be reached."""
    return ProcessError(
        f"Expected signs of life of all {size} processes each {seconds:g} seconds, in {call}. Received: {others}. "
        f"Look for what has stopped the process or its machine, and restart the run; {SILENCE} in the environment sets "
        f"another limit."
    )


def failed_before(call: str) -> ProcessError:
    """The error for a collective after one that failed."""
    return ProcessError(
        f"Expected processes that call the same collectives. Received: {call}, after one that failed. Restart the run."
    )


def no_watch(rank: int, error: BaseException) -> ProcessError:
    """The error for a process whose own thread, which looks after the others, has failed."""
    return ProcessError(
        f"Expected process {rank} to follow the others in a thread. Received: {type(error).__name__}: {error}. A "
        "collective would wait for ever for one that has ended: restart the run."
    )
