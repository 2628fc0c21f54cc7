"""Fast math: fewer or cheaper operations give the same numbers, except for rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import compile_module, prepare
from engine.compiler_options import CompilerOptions
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.passes.dead_code import dead_code
from engine.passes.fast_math import fast_math
from tests.engine.running import buffers, fast, slow

ROWS, COLUMNS = 6, 10
Make = Callable[[Builder, Instruction, Instruction], Instruction]


def splat(b: Builder, value: float) -> Instruction:
    return b.splat(value, (ROWS, COLUMNS), "f32")


CASES: dict[str, tuple[Make, list[str]]] = {
    "rows": (lambda b, x, v: b.divide(x, b.broadcast(v, (ROWS, COLUMNS), (0,))), ["divide", "multiply"]),
    "constant": (lambda b, x, v: b.divide(x, splat(b, 3.0)), ["multiply"]),
    "tiny constant": (lambda b, x, v: b.divide(x, splat(b, 1e-45)), ["divide"]),
    "itself": (lambda b, x, v: b.divide(x, x), []),
    "difference": (lambda b, x, v: b.subtract(x, x), []),
    "nothing": (lambda b, x, v: b.add(splat(b, 0.0), x), []),
    "times nothing": (lambda b, x, v: b.multiply(x, splat(b, 0.0)), []),
    "sums": (lambda b, x, v: b.add(b.add(x, splat(b, 0.1)), splat(b, 0.2)), ["add"]),
    "products": (lambda b, x, v: b.multiply(splat(b, 3.0), b.multiply(splat(b, 0.7), x)), ["multiply"]),
    "products out of range": (
        lambda b, x, v: b.multiply(b.multiply(x, splat(b, 1e-30)), splat(b, 1e-30)),
        ["multiply", "multiply"],
    ),
    "others": (lambda b, x, v: b.subtract(b.multiply(x, x), splat(b, 2.0)), ["multiply", "subtract"]),
}


def module_of(make: Make) -> Module:
    b = Builder()
    x, v = b.parameter("f32", (ROWS, COLUMNS)), b.parameter("f32", (ROWS,))
    return b.module(b.tuple(make(b, x, v)))


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str) -> None:
    make, left = CASES[name]
    module = module_of(make)
    after = dead_code(fast_math(module))
    made = [i.opcode for i in after.entry.instructions]
    assert [opcode for opcode in made if opcode in ("divide", "multiply", "add", "subtract")] == left
    x, v = np.random.default_rng(1).normal(1.0, 0.1, (ROWS, COLUMNS)), np.linspace(0.3, 7.0, ROWS)
    arrays = [x.astype(np.float32), v.astype(np.float32)]
    ((expected,), _), ((found,), _) = slow(module, arrays), fast(after, arrays)
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("element_type", ["s32", "c64"])
def test_other_types_stay_exact(element_type: str) -> None:
    b = Builder()
    x, v = b.parameter(element_type, (4, 3)), b.parameter(element_type, (4,))
    module = b.module(b.tuple(b.divide(x, b.broadcast(v, (4, 3), (0,)))))
    assert fast_math(module) is module


def test_programs_are_compiled_with_it_only_if_asked() -> None:
    module = module_of(CASES["rows"][0])
    exact, loose = (
        [i.opcode for c in prepare(module, options=options).computations() for i in c.instructions]
        for options in (CompilerOptions(), CompilerOptions(fast_math=True))
    )
    assert "multiply" in loose and "multiply" not in exact
    x, v = np.linspace(1, 2, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS), np.full(ROWS, 49.0, np.float32)
    roles = ["variable", "variable"]
    for fast_math_asked in (False, True):
        executable = compile_module(module, roles, {}, options=CompilerOptions(fast_math=fast_math_asked))
        (found,) = executable.run(1, [], buffers([x, v]))
        expected = x * (np.float32(1) / v)[:, None] if fast_math_asked else x / v[:, None]
        np.testing.assert_array_equal(found, expected)
