"""What this project tells users of files that it has written, as Keras does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger("ipu")
PATH = "ipu_report.html"
"""Where reports are written if no path is given."""
KERAS = ("keras", "tf_keras")


def tell_written(files: Sequence[Path], *, aloud: bool = True, after_bar: bool = False) -> None:
    """One line on stdout: where a report is. In the log, at level INFO, if not `aloud` or Keras is told to use logs.

    (`keras.utils.disable_interactive_logging()`.) `after_bar` begins a line first, as Keras' callbacks do where a
    progress bar is.
    """
    page, *others = files
    beside = ", ".join(file.name.removeprefix(page.stem) for file in others)
    line = f"Report written to {page}" + (f" (and {beside})" if beside else "")
    if aloud and all(_speaks(name) for name in KERAS):
        print(f"\n{line}" if after_bar else line, flush=True)
    else:
        logger.info("%s", line)


def _speaks(name: str) -> bool:
    """Whether a Keras, if it is imported at all, prints what it tells."""
    asked = getattr(getattr(sys.modules.get(name), "utils", None), "is_interactive_logging_enabled", None)
    return asked is None or bool(asked())
