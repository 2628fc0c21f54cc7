"""A helper process for a program with many loops, which compiles them from the last on, the program from the first.

The helper receives the loops as data, and stores object code where this process looks for it. Neither waits for the
other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine.machine_code.given_objects import has_compiler
from engine.machine_code.helper_process import locked, may_start, spawn
from engine.private_files import fault_of_folder, make_private

FEWEST = 24
"""Fewest loops for which a helper is started: fewer are compiled in about the time in which a process starts."""
MODULE = "engine.emit.compile_beside"
"""The helper's main module."""


def compile_beside(generated: Sequence[object], folder: Path) -> bool:
    """Starts a helper that compiles the loops from the last on; returns whether one stores objects in `folder`.

    No helper is started for few loops, on one core, where the user refuses helpers, or if `folder` cannot be written.
    Never raises.
    """
    if len(generated) < FEWEST or _cores() < 2 or not has_compiler() or not may_start():
        return False
    with contextlib.suppress(OSError, pickle.PicklingError):
        for each in (folder.parent, folder):
            make_private(each)
            if fault_of_folder(each) is not None or not os.access(each, os.W_OK):
                return False
        with locked(folder / "lock") as lock, tempfile.TemporaryFile() as file:
            if lock is not None:
                pickle.dump(list(generated), file)
                file.seek(0)
                spawn(MODULE, str(file.fileno()), file.fileno(), lock)
        return True
    return False


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
