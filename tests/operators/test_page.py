"""docs/operators.md has a row for every operator, and for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tensorflow.python.ipu import ops

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
OTHERS = {"application_compile_op", "embedded_runtime", "pipelining_ops"}
"""Modules that other pages describe."""


def test_the_table_is_complete() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \|", PAGE.read_text(), re.MULTILINE)
    modules = {name: getattr(ops, name) for name in dir(ops) if name not in OTHERS}
    assert rows == sorted(f"{module}.{name}" for module, value in modules.items() for name in dir(value))
