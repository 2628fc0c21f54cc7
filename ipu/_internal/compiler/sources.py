"""Lines of the user's program that made the operations of a traced function."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent.parent
LIBRARIES = (*(f"{ROOT / name}/" for name in ("engine", "ipu", "keras_ext")), sysconfig.get_path("stdlib"), "<")
CALLS = ("keras_ext/pipelining/traced_step.py", "_internal/compiler/baking.py", "_internal/graphs/tracing.py")
"""Files whose frames call what is traced: frames before them are those of a call of `fit` or `run`."""


def stack_traces(operations: Iterable[Any]) -> dict[str, Any]:
    """TensorFlow's stack traces of operations by name, unread: reading them takes long."""
    return {each.name: each.traceback for each in operations}


def source_of(op_name: str, traces: Mapping[str, Any]) -> str:
    """The innermost line of the user's program in an operation's trace, as path:line; empty if there is none."""
    frames = list(traces.get(op_name, ()))
    begins = (at for at in range(len(frames), 0, -1) if frames[at - 1].filename.endswith(CALLS))
    within = frames[next(begins, 0) :]
    users = (each for each in reversed(within) if not _is_of_a_library(each.filename))
    return next((f"{each.filename}:{each.lineno}" for each in users), "")


def _is_of_a_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or "/site-packages/" in file or "/dist-packages/" in file
