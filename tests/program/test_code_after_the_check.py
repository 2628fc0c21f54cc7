"""Programs are lowered and checked before any machine code is made for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.codelets.language import build
from engine.codelets.language.build import MachineCode
from engine.compile import compile_module
from engine.errors import OutOfTileMemory
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.program.program import Program
from tests.lower.test_general_scatter import scatter_module
from tests.lower.test_sort import lexicographic, sorting
from tests.program.programs import convolution_step


def scattered() -> Module:
    b = Builder("of_its_own")
    old, update = b.parameter("f32"), b.parameter("f32")
    body = b.build(b.add(b.multiply(old, b.constant(0.3217)), b.elementwise("tanh", update)))
    return scatter_module(("f32",), body, (60, 40), 300)


def widely_selected() -> Module:
    b = Builder()
    x, source, zero = b.parameter("s32", (4, 8)), b.parameter("s32", (2, 4)), b.constant(0, "s32")
    body = Builder("nearest")
    first, second = (body.elementwise("abs", body.parameter("s32")) for _ in range(2))
    bodies = body.build(body.compare(first, second, "LE")), binary_computation("xor", "s32")
    made = b.instruction("select-and-scatter", x.shape, (x, source, zero), bodies, window=(WindowDimension(2, 2),) * 2)
    return b.module(made)


PROGRAMS: dict[str, Callable[[], Module]] = {
    "scatter by addition": lambda: scatter_module(("f32",), binary_computation("add", "f32"), (60, 40), 300),
    "scatter of any body": scattered,
    "sort by a comparator": lambda: sorting((9, 40), ["s32", "f32"], 1, lexicographic(["s32", "f32"])),
    "select-and-scatter": widely_selected,
    "pooling": lambda: convolution_step()[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_refused_has_no_machine_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_code(*_: Any, **__: Any) -> Any:
        raise AssertionError("machine code is made")

    def refuse(program: Program) -> None:
        raise OutOfTileMemory("too large")

    monkeypatch.setattr(MachineCode, "address", property(no_code))
    for each in ("begin_object", "make"):
        monkeypatch.setattr(build, each, no_code)
    module = PROGRAMS[name]()
    with pytest.raises(OutOfTileMemory, match="too large"):
        compile_module(module, ["variable"] * len(module.entry.parameters), {}, inspect=refuse)
