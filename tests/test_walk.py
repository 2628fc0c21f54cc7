"""A dot's way from HLO to machine code stays in few folders, so that one can follow it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from engine.codelets.products.contract_f32 import contract_f32
from engine.compile import compile_module
from engine.ir import Module
from engine.ir.builder import Builder
from tests.test_floors import height

MOST_FOLDERS, MOST_FLOORS = 12, 10


def dot(kind: str) -> Module:
    """A dot of variables, whose result is the new value of another one: no codelets of feeds and outputs are needed."""
    builder = Builder()
    left, right, _ = (builder.parameter(kind, shape) for shape in ((40, 30), (30, 50), (40, 50)))
    return builder.module(builder.tuple(builder.dot(left, right)), {2: 0})


@contextmanager
def called_modules() -> Iterator[set[str]]:
    """Names of the engine's modules whose functions are called, in any thread that begins in the block, too."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("engine.") and frame.f_code.co_name != "<module>":
            found.add(name)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def test_a_dot_is_compiled_in_few_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_module(dot("f64"), ["variable"] * 3, {})  # imports what a first program imports
    monkeypatch.setattr(contract_f32, "_address", None)
    with called_modules() as found:
        compile_module(dot("f32"), ["variable"] * 3, {})
    assert {"engine.lower.dot", "engine.codelets.products.contract_plain", "engine.machine_code.elf"} <= found
    folders = {name.rpartition(".")[0] for name in found}
    assert len(folders) <= MOST_FOLDERS, sorted(folders)
    floors = {height(name) for name in found}
    assert len(floors) <= MOST_FLOORS, sorted(floors, key=str)
