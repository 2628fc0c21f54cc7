"""Variables are updated in place, whatever reads their old values, and however results and variables are mixed."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from tests.engine.running import arguments_for, assert_near, buffers, fast, slow
from tests.lower.random_modules import LARGE, SHAPES, Maker


def check(module: Module, steps: int = 3, tolerance: float = 1e-5) -> None:
    """Asserts that outputs and variables agree with the definitions, step after step."""
    values = arguments_for(module)
    for _ in range(steps):
        (outputs, after), (expected, later) = fast(module, values), slow(module, values)
        assert len(outputs) == len(expected)
        for one, other in zip([*outputs, *after], [*expected, *later], strict=True):
            assert_near(one, other, tolerance)
        values = later


def updates(module: Module) -> int:
    """The number of new values that are copied into their variables instead of being written there."""
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    return sum(s.name.endswith(".update") for s in program.compute_sets)


def variables(builder: Builder, count: int, shape: tuple[int, ...] = (5, 30)) -> list[Instruction]:
    return [builder.parameter("f32", shape) for _ in range(count)]


@pytest.mark.parametrize("shape", [(), (3,), (5, 30), (200, 100), (0, 3)])
def test_update_of_the_same_elements_is_in_place(shape: tuple[int, ...]) -> None:
    b = Builder()
    x, step = variables(b, 2, shape)
    module = b.module(b.subtract(x, step), {0: 0})
    check(module)
    assert updates(module) == 0


@pytest.mark.parametrize("shape", [(3,), (5, 30), (200, 100)])
def test_two_variables_change_places(shape: tuple[int, ...]) -> None:
    b = Builder()
    x, y = variables(b, 2, shape)
    check(b.module(b.tuple(y, x), {0: 0, 1: 1}))
    b = Builder()
    x, y, z = variables(b, 3, shape)
    check(b.module(b.tuple(y, z, x), {0: 0, 1: 1, 2: 2}))


def test_new_value_is_anothers_old_value() -> None:
    b = Builder()
    x, y = variables(b, 2)
    check(b.module(b.tuple(y, b.add(x, y)), {0: 0, 1: 1}))
    b = Builder()
    x, y = variables(b, 2)
    check(b.module(b.tuple(b.add(x, y), x), {0: 0, 1: 1}))


def test_old_value_read_by_two_updates() -> None:
    """Each new value needs both old ones: neither may be overwritten first."""
    b = Builder()
    x, y = variables(b, 2)
    total, difference = b.add(x, y), b.subtract(x, y)
    check(b.module(b.tuple(total, difference), {0: 0, 1: 1}))
    check(b.module(b.tuple(total, difference), {0: 1, 1: 0}))


def test_unchanged_variable() -> None:
    b = Builder()
    x, y = variables(b, 2)
    module = b.module(b.tuple(x, b.add(x, y), y), {0: 0, 1: 1})
    check(module)


def test_one_result_for_two_variables() -> None:
    b = Builder()
    x, y = variables(b, 2)
    total = b.add(x, y)
    check(b.module(b.tuple(total, total), {0: 0, 1: 1}))
    check(b.module(b.tuple(total, total, total), {0: 0, 1: 1}))
    b = Builder()
    x, y = variables(b, 2)
    check(b.module(b.tuple(x, x), {0: 0, 1: 1}))


def test_outputs_that_are_old_values() -> None:
    b = Builder()
    x, y = variables(b, 2)
    total = b.add(x, y)
    check(b.module(b.tuple(total, x), {0: 0}))
    check(b.module(b.tuple(x, total, y, x), {0: 1}))
    check(b.module(b.tuple(b.reshape(x, (150,)), total, b.transpose(x, (1, 0))), {0: 1}))


def test_output_that_is_also_the_new_value() -> None:
    b = Builder()
    x, y = variables(b, 2)
    total = b.add(x, y)
    check(b.module(b.tuple(total, total, b.elementwise("negate", total)), {0: 0}))
    check(b.module(b.tuple(total, b.reshape(total, (30, 5))), {0: 0}))


def test_constant_and_splat_as_new_values() -> None:
    b = Builder()
    x, y, z = variables(b, 3, (4,))
    constant = b.constant([1.0, 2.0, 3.0, 4.0])
    module = b.module(b.tuple(constant, b.splat(7.0, (4,)), b.convert(b.iota("s32", (4,), 0), "f32"), x), {
        0: 0, 1: 1, 2: 2
    })  # fmt: skip
    check(module)


@pytest.mark.parametrize("size", [4, 40, 130])
@pytest.mark.parametrize("move", ["transpose", "reverse", "shift", "sum", "row", "dot"])
def test_new_value_from_other_elements_of_the_old_one(move: str, size: int) -> None:
    """Read and written elements differ, so writing in place would destroy elements still to be read."""
    b = Builder()
    shape = (size, size)
    x, y = variables(b, 2, shape)
    moved = {
        "transpose": lambda: b.transpose(x, (1, 0)),
        "reverse": lambda: b.reverse(x, (0, 1)),
        "shift": lambda: b.concatenate([b.slice(x, (1, size), (0, size)), b.slice(x, (0, 1), (0, size))], 0),
        "sum": lambda: b.broadcast(b.reduce(x, b.constant(0.0), (0,)), shape, (1,)),
        "row": lambda: b.broadcast(b.reshape(b.slice(x, (0, 1), (0, size)), (size,)), shape, (1,)),
        "dot": lambda: b.dot(x, y),
    }[move]()
    check(b.module(b.tuple(b.elementwise("tanh", b.add(moved, y))), {0: 0}), tolerance=1e-4)


@pytest.mark.parametrize("size", [4, 40, 130])
def test_old_value_read_at_other_places_by_another_update(size: int) -> None:
    b = Builder()
    x, y = variables(b, 2, (size, size))
    check(b.module(b.tuple(b.add(x, y), b.multiply(b.transpose(x, (1, 0)), y)), {0: 0, 1: 1}))


def test_readers_come_before_the_update() -> None:
    """The update comes first in the module, but its variable is written last."""
    b = Builder()
    w, x = variables(b, 2, (60, 60))
    updated = b.subtract(w, b.multiply(x, b.splat(0.1, (60, 60))))
    product = b.dot(x, w)
    module = b.module(b.tuple(updated, product), {0: 0})
    check(module)
    assert updates(module) == 0


def test_readers_that_need_the_new_value() -> None:
    b = Builder()
    w, x = variables(b, 2, (60, 60))
    updated = b.subtract(w, x)
    both = b.add(b.dot(updated, x), w)
    check(b.module(b.tuple(updated, both), {0: 0}))


def test_variables_of_other_types() -> None:
    b = Builder()
    count, seed = b.parameter("s64"), b.parameter("u32", (2,))
    flags, half = b.parameter("pred", (9,)), b.parameter("f16", (9,))
    more = b.add(count, b.constant(1, "s64"))
    mixed = b.elementwise("xor", b.multiply(seed, b.splat(7, (2,), "u32")), b.splat(1234567, (2,), "u32"))
    module = b.module(b.tuple(more, mixed, b.elementwise("not", flags), b.add(half, half)), {n: n for n in range(4)})
    check(module)


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    ("shapes", "seed"),
    [(SHAPES, seed) for seed in range(60)] + [(LARGE, seed) for seed in range(15)],
    ids=lambda value: str(value) if isinstance(value, int) else ["small", "large"][value is LARGE],
)
def test_random_updates(shapes: tuple[tuple[int, ...], ...], seed: int) -> None:
    module = Maker(seed, shapes).module(4 + seed % 20, variables=1 + seed % len(shapes))
    check(module, steps=1 if shapes is LARGE else 2, tolerance=2e-3)


def test_memory_is_bound_again_for_other_buffers() -> None:
    b = Builder()
    x, y = variables(b, 2, (3,))
    executable = compile_module(b.module(b.tuple(b.add(x, y)), {0: 0}), ["variable"] * 2, {})
    one, other = (buffers([np.full(3, v, np.float32), np.ones(3, np.float32)]) for v in (1, 10))
    for held in (one, other, one, other):
        executable.run(2, [], held)
    assert one[0].read().tolist() == [5] * 3
    assert other[0].read().tolist() == [14] * 3
