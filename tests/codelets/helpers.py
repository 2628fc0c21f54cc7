"""Stands in for compiling in tests of helper processes: `python -c` imports this module by its name."""

from __future__ import annotations

import time
from pathlib import Path

from engine.codelets import ahead


def main(folder: str) -> None:
    """Waits for a file `go`, then writes an object; with a file `fail` it fails before."""
    place = Path(folder)
    while not (place / "go").exists():
        time.sleep(0.001)
    if (place / "fail").exists():
        raise OSError
    (place / "object").touch()
    ahead.keep(place)
