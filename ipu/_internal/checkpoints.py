"""TensorFlow's checkpoints in a folder: which are whole, and which is the newest of these."""

from __future__ import annotations

import logging
from pathlib import Path

import tensorflow as tf
from tensorflow.python.checkpoint import checkpoint_management

from engine.errors import InvalidFile
from engine.private_files import check_regular, read_regular
from engine.whole_files import STATE

logger = logging.getLogger("ipu")
MOST_STATE_BYTES = 1 << 24
FAULTS = (tf.errors.OpError, IndexError, RuntimeError, ValueError)
"""Errors that reading a damaged checkpoint raises."""


def fault_of(checkpoint: str) -> str | None:
    """Reads all of a checkpoint, and returns the error's text; None for a whole one."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except FAULTS as error:
        return str(error)
    return None


def check_files(folder: str | Path) -> None:
    """Raises InvalidFile for pipes and devices among a folder's checkpoints, which TensorFlow would read without end,
    and for a state file that is no text; ResourceLimit for a large one.
    """
    state = Path(folder, STATE)
    check_regular(state, *(path for pattern in ("*.index", "*.data-*") for path in Path(folder).glob(pattern)))
    try:
        read_regular(state, MOST_STATE_BYTES).decode()
    except FileNotFoundError:
        pass
    except UnicodeDecodeError as error:
        raise InvalidFile(
            f"Expected TensorFlow's list of checkpoints in {state}. Received: a damaged file: {error}. Delete it to "
            "train from the beginning."
        ) from error


def mend(folder: str) -> None:
    """Makes the newest whole checkpoint of a folder the latest, with a warning that names each damaged one after it.

    A folder without a file `checkpoint` stays as it is: nothing is restored from it. Raises InvalidFile, a ValueError,
    if all checkpoints are damaged.
    """
    check_files(folder)
    state, latest = Path(folder, STATE), tf.train.latest_checkpoint(folder)
    if not state.exists() or latest is not None and fault_of(latest) is None:
        return
    by_step = sorted(Path(folder).glob("*.index"), key=_step_and_time, reverse=True)
    damaged = {str(state): "it names no checkpoint that exists"} if latest is None else {}
    for path in by_step:
        checkpoint = str(path.with_suffix(""))
        fault = fault_of(checkpoint)
        if fault is None:
            earlier = [str(each.with_suffix("")) for each in reversed(by_step[by_step.index(path) :])]
            checkpoint_management.update_checkpoint_state_internal(
                folder, checkpoint, earlier, save_relative_paths=True
            )
            for name, wrong in damaged.items():
                logger.warning("%s is damaged (%s), so %s is restored", name, wrong, checkpoint)
            return
        damaged[checkpoint] = fault
    name, fault = next(iter(damaged.items()))
    raise InvalidFile(
        f"Expected a whole checkpoint in {folder}. Received: {name}, which is damaged: {fault}. Delete the folder to "
        "train from the beginning."
    )


def _step_and_time(index: Path) -> tuple[int, float]:
    """The number that a checkpoint's name ends in, if there is one, and when it was written."""
    number = index.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1, index.stat().st_mtime
