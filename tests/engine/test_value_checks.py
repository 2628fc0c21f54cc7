"""Checks of values in programs: they equal NumPy's definition, and a step that fails leaves variables alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.errors import InvalidValue
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.value_checks import VALUE_CHECK, ValueCheck
from engine.ops.queues import failing_element
from engine.runtime.feeds import RowFeed
from tests.engine.queue_programs import TOKEN, repeat
from tests.engine.running import buffers

ROLES = ["feed", "variable", "variable"]
MESSAGE = "Received a value {value} at {position} outside of [{low}, {bound})."
TYPES = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64")


def checked(b: Builder, x: Instruction, token: Instruction, check: ValueCheck) -> Instruction:
    """The token after a check of x."""
    return b.instruction(
        *("custom-call", TOKEN, [x, token]),
        custom_call_target=VALUE_CHECK,
        backend_config=check.config(),
        custom_call_has_side_effect=True,
    )


def counting(shape: Shape, check: ValueCheck) -> Module:
    """A step that checks a feed, and adds 1 to a variable."""
    b = Builder()
    x, count, token = b.parameter_of(shape), b.parameter("s32"), b.parameter_of(TOKEN)
    results = b.add(count, b.constant(1, "s32")), checked(b, x, token, check)
    return b.module(b.tuple(*results), {1: 0, 2: 1})


def run(executable: Any, x: np.ndarray, steps: int = 1) -> tuple[int, InvalidValue | None]:
    """The variable afterwards, and the error."""
    held = buffers([np.zeros((), np.int32), np.zeros((), np.int32)])
    try:
        executable.run(steps, [RowFeed(x)], held)
    except InvalidValue as error:
        return int(held[0].read()), error
    return int(held[0].read()), None


def values(rng: np.random.Generator, kind: str, dtype: np.dtype, count: int) -> np.ndarray:
    """Values most of which pass, with extremes among them."""
    given = rng.integers(0 if dtype.kind == "u" else -1, 12, count).astype(dtype)
    if rng.random() < 0.7:
        given = np.sort(np.clip(given, 1, 6))
    if dtype.kind == "f":
        special = [np.nan, np.inf, -np.inf, -0.0, 0.999, -0.999, 1e30]
    else:
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
    if count and rng.random() < 0.5:
        given[rng.integers(count)] = special[rng.integers(len(special))]
    return given


@pytest.mark.parametrize("kind", ["range", "nonzero", "finite"])
@pytest.mark.parametrize("element_type", TYPES)
def test_the_codelet_finds_the_element_that_the_definition_finds(kind: Any, element_type: str) -> None:
    if (kind == "finite") != (element_type[0] == "f") and kind != "range":
        pytest.skip("TensorFlow has no such kernel")
    rng = np.random.default_rng(TYPES.index(element_type))
    for count in (0, 1, 7, 33, 20_000):
        check = ValueCheck(kind, "Test", MESSAGE, *(((1,), (7,)), ((1, -2, 0), (7, 3, 9)))[count % 2])
        shape = Shape(element_type, (count,))
        module = counting(shape, check)
        executables = [compile_module(module, ROLES, {}), EvaluatedExecutable(module, ROLES, {})]
        if count == 33:
            executables.append(DebugExecutable(build_program(module, ROLES, {})))
        for _ in range(6):
            given = values(rng, kind, shape.dtype, count)
            expected = failing_element(check, given)
            for executable in executables:
                after, error = run(executable, given)
                assert (after == 1) == (error is None) == (expected < 0)
                if error is not None:
                    assert error.position == (expected,)
                    assert np.array_equal(error.value, given[expected], equal_nan=True)


def test_a_failing_step_leaves_variables_as_the_step_before_for_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape, check = Shape("s32", (40_000,)), ValueCheck("range", "Gather", MESSAGE, (0,), (10,))
    given = np.zeros((5, 40_000), np.int32)
    given[3, 39_999] = 10
    executable = compile_module(counting(shape, check), ROLES, {})
    for count in ("1", "2", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", count)
        after, error = run(executable, given.reshape(-1), steps=5)
        assert after == 3
        assert error is not None and error.step == 3 and error.position == (39_999,) and error.value == 10
        assert "outside of [0, 10)" in str(error) and "step 4 of the execution's 5" in str(error)
        assert run(executable, np.zeros(200_000, np.int32), steps=5) == (5, None)


@pytest.mark.parametrize("bad", [None, 0, 2])
def test_checks_in_loops_and_branches_fail_where_these_run(bad: int | None) -> None:
    check = ValueCheck("range", "Gather", MESSAGE, (0,), (10,))
    b = Builder()
    x, count, token = b.parameter("s32", (3,)), b.parameter("s32"), b.parameter_of(TOKEN)

    def body(inner: Builder, state: list[Instruction]) -> list[Instruction]:
        given, total, chain = state
        chain = checked(inner, given, chain, check)
        return [inner.add(given, inner.splat(1, (3,), "s32")), inner.add(total, inner.constant(1, "s32")), chain]

    _, total, token_after = repeat(b, 3, [x, count, token], body)
    module = b.module(b.tuple(total, token_after), {1: 0, 2: 1})
    given = np.full(3, 0, np.int32)
    if bad is not None:
        given[1] = 10 - bad
    for executable in (compile_module(module, ROLES, {}), EvaluatedExecutable(module, ROLES, {})):
        after, error = run(executable, given)
        assert (after, error is None) == ((3, True) if bad is None else (0, False))
        if error is not None:
            assert error.position == (1,) and error.value == 10
