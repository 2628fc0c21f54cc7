"""The helper process of engine/codelets/ahead.py: compiles the codelets that do not depend on a model, then ends."""

from __future__ import annotations

import os
from pathlib import Path

from engine.codelets import ahead
from engine.codelets.language.build import make
from engine.runtime.general_codelets import codelets_of, general_codelets


def main(folder: str) -> None:
    """Stores the objects of all general codelets, and a note in `folder` that they exist.

    It compiles the codelets that every program needs first, and the others at low priority, for cores that are idle.
    """
    make(codelets_of(ahead.MODULES[: ahead.NEEDED_FIRST]))
    os.nice(19)
    codelets = general_codelets()
    make(codelets)
    if all(each.path.exists() for each in codelets):  # unless the cache has been cleared meanwhile
        ahead.keep(Path(folder))
