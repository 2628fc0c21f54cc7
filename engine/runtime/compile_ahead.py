"""Compiles the codelets that do not depend on a model: in the helper process of engine/codelets/ahead.py, where the
project is installed from a clone, and for wheels."""

from __future__ import annotations

import os
from pathlib import Path

from engine.codelets import ahead
from engine.codelets.language.build import Codelet, make, objects_of
from engine.machine_code import installed_objects
from engine.runtime.general_codelets import codelets_of, general_codelets


def main(folder: str) -> None:
    """Stores the objects of all general codelets, and a note in `folder` that they exist.

    It compiles the codelets that every program needs first, and the others at low priority, for cores that are idle.
    """
    make(codelets_of(ahead.MODULES[: ahead.NEEDED_FIRST]))
    os.nice(19)
    codelets = general_codelets()
    make(codelets)
    _keep(codelets, Path(folder))


def make_part(number: int, count: int) -> None:
    """Stores the objects of part `number` of `count` parts of the general codelets, which others may compile beside.

    The last one to end notes that all exist.
    """
    codelets = general_codelets()
    make(codelets[number::count])
    _keep(codelets)


def write_archive(folder: str) -> None:
    """Writes the objects of all general codelets for the processor that the environment names, as wheels have them."""
    installed_objects.write(Path(folder), objects_of(general_codelets()))


def _keep(codelets: list[Codelet], folder: Path | None = None) -> None:
    if all(each.path.exists() for each in codelets):  # unless the cache has been cleared meanwhile
        ahead.keep(folder)
