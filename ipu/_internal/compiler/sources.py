"""Lines of the user's program that made the operations of a traced function."""

from __future__ import annotations

import sysconfig
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from engine.ir.op_names import RECOMPUTED, WHOLE
from ipu._internal.compiler.graph_structure import called_graphs

ROOT = Path(__file__).parent.parent.parent.parent
LIBRARIES = (*(f"{ROOT / name}/" for name in ("engine", "ipu", "keras_ext")), sysconfig.get_path("stdlib"), "<")
CALLS = ("keras_ext/pipelining/traced_step.py", "_internal/compiler/baking.py", "_internal/graphs/tracing.py")
"""Files whose frames call the traced function: frames before them are those of a call of `fit` or `run`."""


def source_lines(graph: Any, op_names: Container[str]) -> dict[str, str]:
    """The innermost lines of the user's program, as path:line, that made a graph's operations, by op_name.

    Of the graph's own operations only those in `op_names` are looked up, as half of all are constants and reads; of the
    loops, conditionals and functions that the graph calls, all are. Operations without a line are left out. The lines
    are read at once: TensorFlow's stack traces refer to memory of the graph, and a trace that outlives the graph makes
    the creation of operations fail, anywhere in the process.
    """
    return _lines(graph, {}, op_names)


def _lines(graph: Any, known: dict[int, dict[str, str]], op_names: Container[str] | None = None) -> dict[str, str]:
    found: dict[str, str] = {}
    # Many operations have equal traces; for this call alone, as the graph may be freed then.
    line_of = cache(_user_line)
    for each in graph.get_operations():
        if (op_names is None or each.name in op_names) and (line := line_of(each.traceback)):
            found[each.name] = line
        for called in called_graphs(each):
            if id(called) not in known:
                known[id(called)] = _lines(called, known)
            # Loops and conditionals are traced within their scope, functions in one of their own.
            for name, line in known[id(called)].items():
                found.setdefault(name if name.startswith(f"{each.name}/") else f"{each.name}/{name}", line)
    return found


def _user_line(trace: Any) -> str:
    """The innermost line of the user's program in a stack trace, empty if there is none.

    Operations of a SavedModel have no stack trace at all.
    """
    for at in range(len(trace or ()) - 1, -1, -1):
        frame = trace[at]
        file = frame.filename
        if not _is_of_a_library(file):
            return f"{file}:{frame.lineno}"
        if file.endswith(CALLS):
            break
    return ""


def source_of(op_name: str, lines: Mapping[str, str]) -> str:
    """The line of an operation of the module among those of `source_lines`; empty if there is none."""
    return lines.get(op_name.removeprefix(f"{RECOMPUTED}/").removeprefix(f"{WHOLE}/"), "")


@cache
def _is_of_a_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or "/site-packages/" in file or "/dist-packages/" in file
