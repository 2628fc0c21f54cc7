"""The helper process of engine/emit/beside.py: compiles a program's loops from the last on, then ends."""

from __future__ import annotations

import os
import pickle
from functools import partial

from engine.emit.library import path_of, prepared
from engine.machine_code.objects import object_at


def main(handle: str) -> None:
    """Stores the objects of the loops in an open file, from the last on, until all have been stored by anyone."""
    with os.fdopen(int(handle), "rb") as file:
        generated = pickle.load(file)  # written by the process that started this one
    for each in reversed(generated):
        path = path_of(each)
        if not path.exists():
            object_at(path, partial(prepared, each, path.stem))
