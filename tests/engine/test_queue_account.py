"""The cost report of a program with queues, and the number of its workers."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from engine.compile import build_program
from engine.errors import FeedEnded
from engine.host.work_estimates import is_fine_grained, step_estimate
from engine.ir import Module, Shape
from engine.profile.program_estimate import estimate
from engine.program.program import Program
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from engine.runtime.rings import InfeedRing, OutfeedRing
from engine.runtime.workers import run_segment
from engine.target import target
from tests.engine.queue_programs import sums
from tests.engine.test_queues import branching, nested

SMALL, LARGE = Shape("f32", (4, 5)), Shape("f32", (64, 1000))


def program_of(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=["small", "large"])
def test_rows_are_host_traffic_per_iteration(shape: Shape) -> None:
    found = estimate(program_of(sums([shape], iterations=11)), target("ipu2"))
    assert found.host_bytes == (11 * shape.bytes, 11 * (shape.bytes + 4))
    assert found.host > 0
    assert found.samples_per_replica == 11 * shape.dimensions[0]
    assert not found.assumed


def test_nested_loops_multiply_and_unknown_ones_count_once() -> None:
    inner = estimate(program_of(nested(SMALL)), target("ipu2"))
    assert inner.host_bytes == (4 * 4 + 12 * SMALL.bytes, 4 * 4)
    unknown = estimate(program_of(branching(SMALL)), target("ipu2"))
    assert unknown.unknown_loops == 1
    assert unknown.host_bytes == (4 + SMALL.bytes, SMALL.bytes + 4)


def test_rings_take_no_memory_of_the_chip() -> None:
    """The ring's arrays are at the host; the arrays that a row is copied to take memory."""
    found = estimate(program_of(sums([LARGE], iterations=3)), target("ipu2"))
    assert found.memory.always_live["feeds"] == 0
    assert LARGE.bytes <= max(found.memory.live_bytes) < 3 * LARGE.bytes


def test_loops_of_tiny_work_are_for_one_worker_unless_more_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny, large = (program_of(sums([shape], iterations=1000)) for shape in (Shape("f32"), LARGE))
    assert is_fine_grained(tiny)
    assert not is_fine_grained(large)
    assert not is_fine_grained(program_of(sums([Shape("f32")], iterations=0, steps_in_loop=False)))
    assert step_estimate(large)[0] > 1000 * LARGE.elements > step_estimate(tiny)[0]
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    assert _workers(tiny) == 1
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert _workers(tiny) == 3


def _workers(program: Program) -> int:
    """Number of workers with which a call runs that waits in vain."""
    executable = Executable(program)
    ring = InfeedRing(executable.queues["in"].shapes, 1)
    ring.close()
    variables = [DeviceBuffer(program.variables[number].shape) for number in sorted(program.variables)]
    out = OutfeedRing(executable.queues["out"].shapes, 1)
    with patch("engine.runtime.segments.run_segment", wraps=run_segment) as running, pytest.raises(FeedEnded):
        executable.run(1, [], variables, queues={"in": ring, "out": out})
    return int(running.call_args.args[3])
