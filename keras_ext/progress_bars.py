"""Keras' progress bars: notes whether one is on an unfinished line, so that a notice can end the line first."""

from __future__ import annotations

import sys

from engine.notices import before_notices
from keras_ext.types import KerasProgbar, Nest
from keras_ext.wrapping import Original, wrap

_open = False


def install(bar: type[KerasProgbar]) -> None:
    """Wraps a framework's `Progbar` at class level; every framework's bar writes to stdout."""
    before_notices(end_line)
    wrap(bar, "update", _update)


def _update(
    update: Original, bar: KerasProgbar, current: int, values: Nest = None, finalize: bool | None = None
) -> None:
    global _open
    update(bar, current, values, finalize)
    ends = current >= bar.target if finalize is None and bar.target is not None else bool(finalize)
    _open = bar.verbose == 1 and not ends


def end_line() -> None:
    """Ends the line of a bar that is not full; its next step draws the bar on a new line."""
    global _open
    if _open:
        _open = False
        sys.stdout.write("\n")
        sys.stdout.flush()
