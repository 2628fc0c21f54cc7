"""The engine rounds stochastically, and overflows, exactly as the NumPy definitions say, whatever the program."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.compile import compile_module
from engine.ir import Instruction, Module
from engine.ir.attributes import ConvolutionDimensionNumbers, WindowDimension
from engine.ir.builder import Builder
from engine.ir.floating_point import IEEE, FloatingPoint
from engine.ops.generators import seed_rounding
from engine.ops.rounding import nearest_half, stochastic_half
from tests.engine.running import buffers
from tests.exploring import sample
from tests.floating_point.programs import BEHAVIOURS, BOTH, NAN, STOCHASTIC, check_bits, loop, run

SPECIAL = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 65504, 65519, 65520, 65536, -7e4, 1e38, 1e-8, -3e-8, 6e-5, 1e-39, 2**-25],
    np.float32,
)


def floats(shape: tuple[int, ...], seed: int = 0, scale: float = 4.0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=shape) * np.exp2(generator.uniform(-scale, scale, shape))).astype(np.float32)


def halves(shape: tuple[int, ...], seed: int = 0, scale: float = 4.0) -> np.ndarray:
    return floats(shape, seed, scale).astype(np.float16)


def of(*arrays: np.ndarray) -> tuple[Builder, list[Instruction]]:
    b = Builder("program")
    types = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "s32", "uint8": "u8", "int64": "s64"}
    return b, [b.parameter(types[a.dtype.name], a.shape) for a in arrays]


@pytest.mark.sample(12)
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (17,), (3, 1, 5), (7, 130), (2, 3, 4, 5), (70000,), (0, 4)], ids=str)
def test_conversions(shape: tuple[int, ...], behaviour: FloatingPoint) -> None:
    x = floats(shape, scale=20)
    b, (parameter,) = of(x)
    check_bits(b.module(b.tuple(b.convert(parameter, "f16"))), [x], behaviour)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
def test_special_numbers(behaviour: FloatingPoint) -> None:
    b, (parameter,) = of(SPECIAL)
    check_bits(b.module(b.tuple(b.convert(parameter, "f16"))), [SPECIAL], behaviour)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint8])
def test_conversions_from_other_types(dtype: type) -> None:
    x = (floats((300,), scale=14) * 16).astype(dtype)
    b, (parameter,) = of(x)
    module = b.module(b.tuple(b.convert(parameter, "f16")))
    for behaviour in BEHAVIOURS:
        (result, _) = check_bits(module, [x], behaviour)
    (result, _) = check_bits(module, [x], NAN)
    np.testing.assert_array_equal(result, nearest_half(x, "nan"))


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide"])
def test_arithmetic_of_halves(opcode: str, behaviour: FloatingPoint) -> None:
    x, y = halves((9, 65), 1, 8), halves((9, 65), 2, 8)
    b, (p, q) = of(x, y)
    check_bits(b.module(b.tuple(b.elementwise(opcode, p, q))), [x, y], behaviour)


def test_a_chain_of_operations_in_one_codelet() -> None:
    x, y = halves((33, 21), 1), halves((33, 21), 2)
    b, (p, q) = of(x, y)
    first = b.multiply(b.add(p, q), p)
    wide = b.convert(b.subtract(first, q), "f32")
    check_bits(b.module(b.tuple(first, b.convert(b.multiply(wide, wide), "f16"))), [x, y], STOCHASTIC)


def test_what_is_computed_twice_is_rounded_once() -> None:
    """Several codelets may compute a value for themselves: all get the same one."""
    x = floats((64, 48))
    b, (p,) = of(x)
    half = b.convert(p, "f16")
    turned = b.instruction("transpose", half.array_shape.with_dimensions((48, 64)), (half,), dimensions=(1, 0))
    wide, other = b.convert(half, "f32"), b.convert(turned, "f32")
    one, two = run(b.module(b.tuple(b.add(wide, wide), b.add(other, other))), [x], STOCHASTIC)[0]
    np.testing.assert_array_equal(one, two.T)


@pytest.mark.parametrize("shape", [(5, 70), (40, 3), (300, 17)])
def test_sums_and_products_are_rounded_once(shape: tuple[int, int]) -> None:
    """Sums of whole numbers are exact in any order, so the definition's bits are expected."""
    generator = np.random.default_rng(0)
    x = generator.integers(-60, 60, shape).astype(np.float16)
    w = generator.integers(-60, 60, (shape[1], 9)).astype(np.float16)
    b, (p, q) = of(x, w)
    zero = b.constant(0, "f16")
    results = b.reduce(p, zero, (1,)), b.reduce(p, zero, (0,)), b.reduce(p, zero, (0, 1)), b.dot(p, q)
    for behaviour in BEHAVIOURS:
        check_bits(b.module(b.tuple(*results)), [x, w], behaviour)


def test_convolutions_and_windows() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-30, 30, (2, 8, 8, 3)).astype(np.float16)
    k = generator.integers(-30, 30, (3, 3, 3, 5)).astype(np.float16)
    b, (p, q) = of(x, k)
    window = (WindowDimension(3), WindowDimension(3))
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    convolved = b.convolution(p, q, window, numbers)
    pooled = b.reduce_window(p, b.constant(0, "f16"), (WindowDimension(1), *window, WindowDimension(1)))
    check_bits(b.module(b.tuple(convolved, pooled)), [x, k], STOCHASTIC)


def test_iterations_of_a_loop_round_again() -> None:
    """A sum in 16 bits grows by less than half a unit in each iteration: rounded to nearest it would never move."""
    x = np.full((600,), 1, np.float16)
    b, (p,) = of(x)

    def body(inside: Builder, state: list[Instruction]) -> list[Instruction]:
        return [inside.add(state[0], inside.splat(1e-4, (600,), "f16"))]

    module = b.module(b.tuple(*loop(b, 50, [p], body)))
    (result, _) = check_bits(module, [x], STOCHASTIC)
    assert abs(float(result.astype(np.float64).mean()) - 1.005) < 5 * 2.0**-10 * np.sqrt(50 / 4 / 600)
    np.testing.assert_array_equal(run(module, [x], IEEE)[0][0], x)


def test_loops_within_loops() -> None:
    x = halves((40,))
    b, (p,) = of(x)

    def iteration(inside: Builder, state: list[Instruction]) -> list[Instruction]:
        return [inside.multiply(state[0], inside.splat(1.003, (40,), "f16"))]

    def body(inside: Builder, state: list[Instruction]) -> list[Instruction]:
        return [inside.add(loop(inside, 3, state, iteration)[0], inside.splat(0.01, (40,), "f16"))]

    check_bits(b.module(b.tuple(*loop(b, 4, [p], body))), [x], STOCHASTIC)


def test_branches() -> None:
    x, which = halves((50,)), np.int32(1)
    b, (p, q) = of(x, np.asarray(which))

    def branch(factor: float) -> object:
        inside = Builder("branch")
        value = inside.parameter("f16", (50,))
        return inside.build(inside.multiply(value, inside.splat(factor, (50,), "f16")))

    chosen = b.conditional(q, [branch(1.01), branch(3.03), branch(0.77)], [p, p, p])  # type: ignore[list-item]
    for number in range(3):
        check_bits(b.module(b.tuple(chosen)), [x, np.asarray(np.int32(number))], STOCHASTIC)


def counter_program(size: int = 5000) -> Module:
    b = Builder("counter")
    p = b.parameter("f16", (size,))
    new = b.add(p, b.splat(1e-4, (size,), "f16"))
    return b.module(b.tuple(new), {0: 0})


def test_steps_draw_new_keys_and_calls_go_on_where_the_last_one_ended() -> None:
    start = np.ones(5000, np.float16)
    executable = compile_module(counter_program(), ["variable"], {}, floating_point=STOCHASTIC)
    ends = []
    for calls in ([12], [5, 7], [1] * 12):
        held = buffers([start])
        seed_rounding(9)
        for steps in calls:
            executable.run(steps, [], held)
        ends.append(held[0].read())
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])
    assert np.unique(ends[0]).size > 2
    held = buffers([start])
    seed_rounding(10)
    executable.run(12, [], held)
    assert (held[0].read() != ends[0]).any()


@pytest.mark.parametrize("behaviour", [STOCHASTIC, BOTH], ids=str)
def test_workers_do_not_matter(behaviour: FloatingPoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    x, y = floats((300, 256)), halves((300, 256), 3)
    b, (p, q) = of(x, y)
    half = b.convert(p, "f16")
    results = b.multiply(half, q), b.dot(half, b.parameter("f16", (256, 64)))
    arguments = [x, y, halves((256, 64), 4)]
    module = b.module(b.tuple(*results))
    found = []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
        found.append(run(module, arguments, behaviour)[0])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_ieee_is_the_default_and_changes_nothing() -> None:
    b, (p,) = of(SPECIAL)
    module = b.module(b.tuple(b.convert(p, "f16")))
    with np.errstate(over="ignore"):
        expected = SPECIAL.astype(np.float16)
    np.testing.assert_array_equal(run(module, [SPECIAL], IEEE)[0][0], expected)
    executable = compile_module(module, ["variable"], {})
    np.testing.assert_array_equal(executable.run(1, [], buffers([SPECIAL]))[0], expected)


def test_the_bits_are_those_of_the_page() -> None:
    """docs/floating_point.md says how anybody can have the same bits: by key, and number of the element."""
    from engine.ir import Shape
    from engine.ops.generators import ROUNDING_STATE
    from engine.ops.random import philox_bits
    from engine.ops.rounding import random_bits

    x = floats((11, 13))
    b, (p,) = of(x)
    seed_rounding(2024)
    _, keys = philox_bits(ROUNDING_STATE.read(), Shape("u32", (1,)))
    bits = random_bits(np.arange(x.size, dtype=np.uint32).reshape(x.shape), keys[0])
    result = run(b.module(b.tuple(b.convert(p, "f16"))), [x], STOCHASTIC, seed=2024)[0][0]
    np.testing.assert_array_equal(result, stochastic_half(x, bits, "clip"))


def test_random_programs() -> None:
    """Chains of operations on halves and floats, in any order, over shapes that do not divide."""
    generator = np.random.default_rng(42)
    for trial, behaviour in zip(sample(range(12), 6), itertools.cycle(BEHAVIOURS), strict=False):
        shape = tuple(int(s) for s in generator.integers(1, 40, generator.integers(1, 4)))
        arguments = [halves(shape, trial, 6), floats(shape, trial + 100, 6)]
        b, values = of(*arguments)
        for _ in range(10):
            one, other = (values[int(k)] for k in generator.integers(0, len(values), 2))
            kind = "f16" if generator.random() < 0.6 else "f32"
            one, other = (v if v.array_shape.element_type == kind else b.convert(v, kind) for v in (one, other))
            values.append(b.elementwise(str(generator.choice(["add", "subtract", "multiply", "maximum"])), one, other))
        check_bits(b.module(b.tuple(*values[-4:])), arguments, behaviour)
