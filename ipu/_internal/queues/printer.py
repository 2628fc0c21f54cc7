"""An outfeed whose rows are printed when they are received."""

from __future__ import annotations

import numpy as np

from engine.notices import write_notice
from ipu._internal.queues.outfeed import OutfeedEndpoint, Rows

DEPTH = 16


class Printer(OutfeedEndpoint):
    """Writes each row to the standard error after `title` and a colon."""

    _may_be_synthetic = False
    puts_replicas_together = False

    def __init__(self, title: str) -> None:
        self._title = title
        super().__init__(None, last_only=False, depth=DEPTH)

    def _received(self, rows: Rows) -> None:
        for row in rows[0]:
            write(self._title, row)


def write(title: str, row: np.ndarray) -> None:
    """Writes an array to the standard error."""
    write_notice(f"{title}: {row}\n")
