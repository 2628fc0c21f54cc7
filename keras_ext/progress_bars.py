"""Keras' progress bars: notes whether one is on an unfinished line, so that a notice can end the line first."""

from __future__ import annotations

import functools
import sys

from engine.notices import before_notices
from keras_ext.types import KerasProgbar, Nest

_open = False


def install(bar: type[KerasProgbar]) -> None:
    """Wraps a framework's `Progbar` at class level; every framework's bar writes to stdout."""
    before_notices(end_line)
    update = bar.update

    @functools.wraps(update)
    def noted_update(self: KerasProgbar, current: int, values: Nest = None, finalize: bool | None = None) -> None:
        global _open
        update(self, current, values, finalize)
        ends = current >= self.target if finalize is None and self.target is not None else bool(finalize)
        _open = self.verbose == 1 and not ends

    bar.update = noted_update  # type: ignore[method-assign]


def end_line() -> None:
    """Ends the line of a bar that is not full; its next step draws the bar on a new line."""
    global _open
    if _open:
        _open = False
        sys.stdout.write("\n")
        sys.stdout.flush()
