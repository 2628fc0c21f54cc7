"""Log messages that start on a line of their own, also while a progress bar is drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable

LOGGERS = ("ipu", "ipu.config")

_end_lines: list[Callable[[], None]] = []


def before_notices(end_line: Callable[[], None]) -> None:
    """Registers a callback that ends an unfinished line, and makes the loggers of the package call it."""
    if not _end_lines:
        for name in LOGGERS:
            logging.getLogger(name).addFilter(_start_line)
    _end_lines.append(end_line)


def start_line() -> None:
    """Ends each unfinished line."""
    for end_line in _end_lines:
        end_line()


def _start_line(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.INFO:
        start_line()
    return True
