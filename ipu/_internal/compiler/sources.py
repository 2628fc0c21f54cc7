"""Lines of the user's program that made the operations of a traced function."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.ir.op_names import RECOMPUTED, WHOLE

ROOT = Path(__file__).parent.parent.parent.parent
LIBRARIES = (*(f"{ROOT / name}/" for name in ("engine", "ipu", "keras_ext")), sysconfig.get_path("stdlib"), "<")
CALLS = ("keras_ext/pipelining/traced_step.py", "_internal/compiler/baking.py", "_internal/graphs/tracing.py")
"""Files whose frames call what is traced: frames before them are those of a call of `fit` or `run`."""

CALLED = {
    **dict.fromkeys(("While", "StatelessWhile"), ("body",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
}
"""Attributes of operations that name the functions they call."""


def stack_traces(graph: Any) -> dict[str, Any]:
    """TensorFlow's stack traces of a graph's operations by op_name, unread: reading them takes long.

    Among them are those of the loops, conditionals and functions that the graph calls.
    """
    return _traces(graph, {})


def _traces(graph: Any, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in graph.get_operations():
        found[each.name] = each.traceback
        for attribute in CALLED.get(each.type, ()):
            function = each.get_attr(attribute).name
            if function not in known:
                called = getattr(graph._get_function(function), "graph", None)
                known[function] = {} if called is None else _traces(called, known)
            # Loops and conditionals are traced within their scope, functions in one of their own.
            for name, trace in known[function].items():
                found.setdefault(name if name.startswith(f"{each.name}/") else f"{each.name}/{name}", trace)
    return found


def source_of(op_name: str, traces: Mapping[str, Any]) -> str:
    """The innermost line of the user's program in an operation's trace, as path:line; empty if there is none."""
    frames = list(traces.get(op_name.removeprefix(f"{RECOMPUTED}/").removeprefix(f"{WHOLE}/"), ()))
    begins = (at for at in range(len(frames), 0, -1) if frames[at - 1].filename.endswith(CALLS))
    within = frames[next(begins, 0) :]
    users = (each for each in reversed(within) if not _is_of_a_library(each.filename))
    return next((f"{each.filename}:{each.lineno}" for each in users), "")


def _is_of_a_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or "/site-packages/" in file or "/dist-packages/" in file
