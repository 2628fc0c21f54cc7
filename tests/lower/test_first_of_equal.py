"""First positions of equal ids against their definition: types, extremes, colliding ids, executors and files."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.rows.first_of_equal import MULTIPLIER, slot_bits
from engine.compile import build_program
from engine.debug import DebugExecutable
from engine.errors import InternalError
from engine.evaluate import evaluate
from engine.files.checks import check_module
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.ir.device_operations import FIRST_OF_EQUAL
from engine.runtime.executable import Executable
from tests.engine.running import buffers
from tests.program.machine import Machine

COUNTS = [1, 2, 3, 63, 64, 65, 512, 1000, 8193]


def naive(ids: np.ndarray) -> np.ndarray:
    """The definition."""
    known: dict[int, int] = {}
    return np.array([known.setdefault(int(each), k) for k, each in enumerate(ids)], np.int32)


def module_of(element_type: str, count: int) -> Module:
    b = Builder()
    given = b.parameter(element_type, (count,))
    return b.module(b.instruction("custom-call", Shape("s32", (count,)), (given,), custom_call_target=FIRST_OF_EQUAL))


def run(module: Module, ids: np.ndarray) -> np.ndarray:
    """The result, which must be the same on the debug executor, and in guarded memory."""
    check_module(module)
    program = build_program(module, ["variable"], {}, verify=True)
    (result,) = Executable(program).run(1, [], buffers([ids]))
    (debugged,) = DebugExecutable(program).run(1, [], buffers([ids]))
    assert debugged.tobytes() == result.tobytes()
    Machine(program, {0: ids}).run(lambda units: reversed(range(units)))
    return np.asarray(result)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_definition(dtype: type[np.integer], count: int) -> None:
    rng, limits = np.random.default_rng(count), np.iinfo(dtype)
    few = rng.integers(0, 1 + min(count // 3, limits.max), count).astype(dtype)
    extremes = rng.choice(np.array([limits.min, limits.max, limits.max // 2, limits.max // 2 + 1, 0, 1], dtype), count)
    anything = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    module = module_of(f"{'u' if limits.min == 0 else 's'}{8 * few.itemsize}", count)
    for ids in (few, extremes, anything):
        expected = naive(ids)
        np.testing.assert_array_equal(run(module, ids), expected)
        np.testing.assert_array_equal(evaluate(module, [ids])[0], expected)


def test_ids_of_one_slot() -> None:
    inverse, count = pow(MULTIPLIER, -1, 2**64), 1000
    below = 64 - slot_bits(count)
    ids = np.array([(k % 300 * inverse) % 2**64 for k in range(count)], np.uint64).astype(np.int64)
    slots = {((int(each) * MULTIPLIER) % 2**64) >> below for each in ids}
    assert len(slots) == 1
    np.testing.assert_array_equal(run(module_of("s64", count), ids), naive(ids))


def test_no_ids() -> None:
    assert evaluate(module_of("s32", 0), [np.zeros(0, np.int32)])[0].shape == (0,)
    assert run(module_of("s32", 0), np.zeros(0, np.int32)).shape == (0,)


@pytest.mark.parametrize("given, made", [(Shape("f32", (3,)), Shape("s32", (3,))), (Shape("s32", (3,)), Shape("s32"))])
def test_other_shapes_are_refused(given: Shape, made: Shape) -> None:
    b = Builder()
    operands = (b.parameter(given.element_type, given.dimensions),)
    module = b.module(b.instruction("custom-call", made, operands, custom_call_target=FIRST_OF_EQUAL))
    with pytest.raises(InternalError, match="Expected ids"):
        check_module(module)
