"""rng-bit-generator and rng: the definition's bits, for any split of the work; new numbers each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ops.generators import RNG_STATE, seed_rng
from engine.runtime.executable import Executable
from tests.engine.running import buffers, check
from tests.program.machine import Machine
from tests.program.test_units import check_unit

GENERATORS = [("RNG_PHILOX", 3), ("RNG_PHILOX", 2), ("RNG_DEFAULT", 3), ("RNG_THREE_FRY", 2)]
DIMENSIONS = [(), (1,), (4,), (7,), (0,), (3, 0), (2, 3), (5, 3, 7), (3, 4, 5), (70, 91), (33333,)]
LAST = 2**64 - 3
"""A counter that overflows soon."""


@pytest.fixture(autouse=True)
def hidden_state() -> Iterator[None]:
    """Each test starts from the same hidden state, and leaves it as it was."""
    before = RNG_STATE.read()
    seed_rng(1)
    yield
    RNG_STATE.write(before)


def bits(shape: Shape, algorithm: str, words: int, state_too: bool = True) -> Module:
    builder = Builder()
    state = builder.parameter("u64", (words,))
    made = builder.instruction("rng-bit-generator", TupleShape((state.shape, shape)), (state,), rng_algorithm=algorithm)
    parts = [builder.get_tuple_element(made, k) for k in range(2)]
    return builder.module(builder.tuple(*parts) if state_too else parts[1])


@pytest.mark.sample(8)
@pytest.mark.parametrize(("algorithm", "words"), GENERATORS)
@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_bits_are_those_of_the_definition(algorithm: str, words: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    for dimensions in DIMENSIONS:
        state = rng.integers(0, 2**64 - 1, words, np.uint64)
        state[1] = LAST if rng.integers(2) else 5
        check(bits(Shape(kind, dimensions), algorithm, words), [state])


@pytest.mark.parametrize(("algorithm", "words"), GENERATORS)
def test_bits_do_not_depend_on_the_workers(algorithm: str, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next state is a variable, so that every step continues from the last one."""
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    module = bits(Shape("u16", (310, 333)), algorithm, words)
    module.aliases[0] = 0
    state = np.arange(words, dtype=np.uint64) + LAST
    results = []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
        held = buffers([state])
        (drawn,) = compile_module(module, ["variable"], {}, verify=True).run(25, [], held)
        results.append((drawn, held[0].read()))
    held = buffers([state])
    (expected,) = EvaluatedExecutable(module, ["variable"], {}).run(25, [], held)
    for drawn, after in results:
        np.testing.assert_array_equal(drawn, expected)
        np.testing.assert_array_equal(after, held[0].read())


@pytest.mark.parametrize(("algorithm", "words"), GENERATORS)
@pytest.mark.parametrize("kind", ["u8", "u32", "u64"])
def test_units_touch_only_what_they_say(algorithm: str, words: int, kind: str) -> None:
    program = build_program(bits(Shape(kind, (57, 101)), algorithm, words), ["variable"], {})
    machine = Machine(program, {0: np.arange(words, dtype=np.uint64)})
    assert program.compute_sets[0].units > 1
    for compute_set in program.compute_sets:
        for unit in range(compute_set.units):
            check_unit(machine, compute_set, unit)


def test_an_unread_next_state_costs_nothing() -> None:
    program = build_program(bits(Shape("u32", (8,)), "RNG_PHILOX", 3, state_too=False), ["variable"], {})
    assert [each.work.kind for each in program.compute_sets] == ["RandomBits"]


@pytest.mark.parametrize(("algorithm", "words"), [("RNG_MARSAGLIA", 3), ("RNG_THREE_FRY", 3), ("RNG_PHILOX", 4)])
def test_undefined_generators_are_refused(algorithm: str, words: int) -> None:
    module = bits(Shape("u32", (8,)), algorithm, words)
    with pytest.raises(UnsupportedOperation, match=f"RNG_PHILOX.*{algorithm}"):
        build_program(module, ["variable"], {})
    with pytest.raises(UnsupportedOperation, match=f"RNG_PHILOX.*{algorithm}"):
        evaluate(module, [np.zeros(words, np.uint64)])


def draw(builder: Builder, shape: Shape, distribution: str, first: Any, second: Any) -> Instruction:
    scalars = [builder.constant(value, shape.element_type) for value in (first, second)]
    return builder.instruction("rng", shape, scalars, distribution=distribution)


def compiled(module: Module) -> Executable:
    return compile_module(module, [], {}, verify=True)


UNIFORM = [
    ("f32", -1, 3), ("f32", 2.5, 2.5), ("f16", 0, 1), ("f16", 1, 2), ("bf16", -3, 5), ("f64", 2, 5),
    ("pred", False, True), ("s8", -100, 100), ("u8", 3, 250), ("s16", -7, -2), ("u16", 0, 7),
    ("s32", -(2**31), 2**31 - 1), ("u32", 5, 2**32 - 1), ("s64", -(2**40), 2**41), ("u64", 0, 2**63),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "low", "high"), UNIFORM)
def test_uniform(kind: str, low: float, high: float) -> None:
    """Numbers equal the definition's, are in the range, and spread evenly over it."""
    for dimensions in [(), (7,), (1, 4, 1), (0, 3), (103, 99)]:
        builder = Builder()
        draw(builder, Shape(kind, dimensions), "RNG_UNIFORM", low, high)
        module = builder.module()
        seed_rng(5)
        (expected,) = evaluate(module, [])
        seed_rng(5)
        (drawn,) = compiled(module).run(1, [], [])
        np.testing.assert_array_equal(drawn, expected)
    numbers = drawn.astype(np.float64)
    assert low <= numbers.min() and (numbers.max() < high or kind == "pred" or low == high)
    places = (numbers - low) / max(float(high) - low, 1e-9)
    expected_mean = 0.5 if low != high else 0.0
    # The mean of integers is half a step below the middle.
    step = 0.5 / (float(high) - low) if drawn.dtype.kind in "iu" else 0.0
    assert abs(places.mean() - (expected_mean - step)) < 0.02
    if low != high and kind != "pred":
        counts = np.histogram(places, 4)[0] / places.size
        assert np.all(abs(counts - 0.25) < 0.06 if high - low > 10 or drawn.dtype.kind == "f" else True)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64"])
def test_normal(kind: str) -> None:
    """Numbers equal the definition's except for last digits, which come from logarithm and cosine."""
    builder = Builder()
    draw(builder, Shape(kind, (250, 401)), "RNG_NORMAL", -1, 2)
    module = builder.module()
    seed_rng(5)
    (expected,) = evaluate(module, [])
    seed_rng(5)
    (drawn,) = compiled(module).run(1, [], [])
    assert drawn.dtype == expected.dtype
    numbers = drawn.astype(np.float64)
    digits = {"f64": 1e-12, "f32": 1e-5, "f16": 1e-2, "bf16": 7e-2}[kind]
    np.testing.assert_allclose(numbers, expected.astype(np.float64), rtol=0, atol=digits)
    standard = (numbers + 1) / 2
    moments = [np.mean(standard**power) for power in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.15)
    assert abs(moments[0]) < 0.015 and abs(moments[1] - 1) < 0.02
    assert 3.5 < abs(standard).max() < 7
    assert abs(np.mean(standard[:, 1:] * standard[:, :-1])) < 0.02


def test_normal_integers_are_refused() -> None:
    builder = Builder()
    draw(builder, Shape("s32", (4,)), "RNG_NORMAL", 0, 1)
    with pytest.raises(UnsupportedOperation, match="RNG_NORMAL of floating-point"):
        build_program(builder.module(), [], {})


def test_bounds_are_read_at_run_time() -> None:
    builder = Builder()
    low, high = builder.parameter("f32"), builder.parameter("f32")
    builder.instruction("rng", Shape("f32", (999,)), (low, high), distribution="RNG_UNIFORM")
    executable = compile_module(builder.module(), ["variable"] * 2, {})
    for bounds in ((0, 1), (-5, -4), (1e6, 2e6)):
        (drawn,) = executable.run(1, [], buffers([np.float32(bound) for bound in bounds]))
        assert bounds[0] <= drawn.min() < drawn.max() < bounds[1]


def test_every_op_of_every_step_draws_new_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    builder = Builder()
    one, other = (draw(builder, Shape("f32", (90, 100)), "RNG_UNIFORM", 0, 1) for _ in range(2))
    module = builder.module(builder.tuple(one, other))
    results = []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
        seed_rng(3)
        executable = compiled(module)
        results.append(np.stack([executable.run(60, [], [], outputs="all") for _ in range(2)]))
    drawn = results[0].reshape(-1, 9000)
    assert drawn.shape[0] == 2 * 2 * 60
    assert len(np.unique(drawn[:, :2], axis=0)) == len(drawn)
    assert abs(np.corrcoef(drawn[:6]) - np.eye(6)).max() < 0.06
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


def test_seed_reaches_compiled_programs() -> None:
    builder = Builder()
    draw(builder, Shape("u32", (50,)), "RNG_UNIFORM", 0, 2**32 - 1)
    executables = [compiled(builder.module()) for _ in range(2)]
    drawn = []
    for value in (7, 7, 8, -1, 2**64 - 1):
        seed_rng(value)
        drawn.append([executable.run(1, [], [])[0] for executable in executables])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[3], drawn[4])
    first = {tuple(array) for pair in drawn for array in pair}
    assert len(first) == 6


def test_loops_draw_new_numbers_each_iteration() -> None:
    """A loop of five iterations, each of which writes a row; the definition draws the same numbers."""
    state = TupleShape((Shape("s32"), Shape("f32", (5, 33))))
    condition = Builder("condition")
    iteration = condition.get_tuple_element(condition.parameter_of(state), 0)
    condition.compare(iteration, condition.constant(5, "s32"), "LT")
    body = Builder("body")
    before = body.parameter_of(state)
    iteration, rows = (body.get_tuple_element(before, k) for k in range(2))
    row = draw(body, Shape("f32", (1, 33)), "RNG_UNIFORM", 0, 1)
    starts = (iteration, body.constant(0, "s32"))
    written = body.instruction("dynamic-update-slice", rows.shape, (rows, row, *starts))
    body.tuple(body.add(iteration, body.constant(1, "s32")), written)
    builder = Builder()
    start = builder.tuple(builder.constant(0, "s32"), builder.splat(0.0, (5, 33)))
    loop = builder.instruction("while", state, (start,), (body.build(), condition.build()))
    module = builder.module(builder.get_tuple_element(loop, 1))
    (expected,) = evaluate(module, [])
    seed_rng(1)
    drawn = compiled(module).run(3, [], [], outputs="all")[0]
    np.testing.assert_array_equal(drawn[0], expected)
    assert len(np.unique(drawn.reshape(15, 33), axis=0)) == 15


def test_hidden_state_counts_what_was_drawn() -> None:
    builder = Builder()
    draw(builder, Shape("f64", (9,)), "RNG_UNIFORM", 0, 1)
    seed_rng(-2)
    compiled(builder.module()).run(4, [], [])
    # Nine numbers of 64 bits take 18 words, which are five counters of four.
    np.testing.assert_array_equal(RNG_STATE.read(), np.array([2**64 - 2, 20, 0], np.uint64))
