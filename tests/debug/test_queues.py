"""Queues, hidden states and floating-point exceptions: a step that runs twice counts once."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.host.queues import COPIES
from engine.compile import build_program
from engine.debug import DebugExecutable, debugging
from engine.errors import DebugError, FeedEnded, FloatingPointException
from engine.ir import Shape
from engine.ir.builder import Builder
from engine.ir.floating_point import FloatingPoint
from engine.ops.generators import RNG_STATE, seed_rng
from engine.program.program import Program
from engine.program.work.queues import InfeedCopy, LeafCopyWork, OutfeedCopy
from engine.runtime.rings import InfeedRing
from tests.debug.codelets import is_small
from tests.engine.queue_programs import elements, exchange, rings, sums, zeros
from tests.engine.running import buffers

SMALL, LARGE = Shape("f32", (3, 5)), Shape("f32", (70, 100))


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("in_loop", [True, False])
def test_rows_are_taken_and_enqueued_once(shape: Shape, in_loop: bool) -> None:
    module, fed = sums([shape], 3, in_loop), {"in": elements([shape], 6)}
    steps = 2 if in_loop else 6
    expected, totals = exchange("tiles", module, fed, 2, steps)
    with debugging(tiles=3) as session:
        rows, values = exchange("tiles", module, fed, 2, steps)
    assert [r.tobytes() for r in rows["out"]] == [e.tobytes() for e in expected["out"]]
    assert [v.tobytes() for v in values] == [t.tobytes() for t in totals]
    (record,) = session.records
    infeeds = [each for each in record.supersteps if ".infeed" in each.name or "in leaf" in each.name]
    assert sum(each.host_bytes for each in infeeds) >= 6 * shape.bytes


def test_a_closed_ring_ends_the_call() -> None:
    module = sums([SMALL], 4)
    executable, variables = DebugExecutable(program_of_queues(SMALL)), zeros(module)
    bound = rings(executable, 8)
    infeed = bound["in"]
    assert isinstance(infeed, InfeedRing)
    infeed.put(elements([SMALL], 3))
    infeed.close()
    with pytest.raises(FeedEnded):
        executable.run(1, [], variables, queues=bound)
    assert variables[0].read() == 0


def program_of_queues(shape: Shape) -> Program:
    return build_program(sums([shape], 4), ["variable", "variable"], {})


@pytest.mark.parametrize(
    ("kind", "message"), [(OutfeedCopy, "publish whole rows"), (InfeedCopy, "has not been written")]
)
def test_a_copy_that_does_nothing(kind: type[LeafCopyWork], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COPIES, kind, is_small)
    program = program_of_queues(LARGE)
    assert any(isinstance(each.work, kind) for each in program.compute_sets)
    executable = DebugExecutable(program)
    bound = rings(executable, 8)
    infeed = bound["in"]
    assert isinstance(infeed, InfeedRing)
    infeed.put(elements([LARGE], 4))
    with pytest.raises(DebugError, match=message):
        executable.run(1, [], zeros(sums([LARGE], 4)), queues=bound)


def test_random_numbers_move_on_once() -> None:
    b = Builder()
    low, high = b.constant(0.0), b.constant(1.0)
    b.instruction("rng", Shape("f32", (50,)), (low, high), distribution="RNG_UNIFORM")
    program = build_program(b.module(), [], {})
    seed_rng(3)
    first, second = (DebugExecutable(program).run(2, [], [], "all")[0] for _ in range(2))
    after = RNG_STATE.read()
    from engine.runtime.executable import Executable

    seed_rng(3)
    for expected in (first, second):
        np.testing.assert_array_equal(Executable(program).run(2, [], [], "all")[0], expected)
    np.testing.assert_array_equal(RNG_STATE.read(), after)


def test_exceptions_are_counted_once() -> None:
    b = Builder("roots")
    x = b.parameter("f32", (6,))
    module = b.module(b.tuple(b.elementwise("sqrt", x)), {0: 0})
    values = np.array([1, -1, 4, -4, 9, -9], np.float32)
    from engine.compile import compile_module

    behaviour = FloatingPoint(exceptions=frozenset({"inv"}))
    messages = []
    for debug in (False, True):
        with debugging() if debug else np.errstate():
            executable = compile_module(module, ["variable"], {}, floating_point=behaviour)
        assert isinstance(executable, DebugExecutable) is debug
        held = buffers([values])
        with pytest.raises(FloatingPointException, match="3 of 6 elements of sqrt") as error:
            executable.run(1, [], held)
        messages.append(str(error.value))
        np.testing.assert_array_equal(held[0].read(), values)
    assert messages[0] == messages[1]
