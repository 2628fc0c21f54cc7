"""Messages to users about written files, printed or logged as Keras does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger("ipu")
PATH = "ipu_report.html"
"""The default path of reports."""
KERAS = ("keras", "tf_keras")


def announce_written(files: Sequence[Path], *, aloud: bool = True, after_bar: bool = False) -> None:
    """Prints the path of a report on stdout; logs it, at level INFO, if not `aloud` or Keras logs its messages.

    Keras logs its messages after `keras.utils.disable_interactive_logging()`. `after_bar` begins a new line first, as
    Keras' callbacks do after a progress bar.
    """
    page, *others = files
    beside = ", ".join(file.name.removeprefix(page.stem) for file in others)
    line = f"Report written to {page}" + (f" (and {beside})" if beside else "")
    if aloud and all(_speaks(name) for name in KERAS):
        print(f"\n{line}" if after_bar else line, flush=True)
    else:
        logger.info("%s", line)


def _speaks(name: str) -> bool:
    """Whether a Keras prints its messages, or is not imported."""
    asked = getattr(getattr(sys.modules.get(name), "utils", None), "is_interactive_logging_enabled", None)
    return asked is None or bool(asked())
