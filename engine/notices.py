"""Notices on stderr and log messages that start on a line of their own, also while a progress bar is drawn."""

from __future__ import annotations

import contextlib
import logging
import sys
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


def write_notice(text: str) -> None:
    """Writes to stderr at once. A stderr that is missing, closed, full or read by nobody ends no program."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def is_on_terminal() -> bool:
    """Whether stderr is a terminal."""
    with contextlib.suppress(OSError, ValueError):
        return sys.stderr is not None and sys.stderr.isatty()
    return False


def _start_line(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.INFO:
        start_line()
    return True
