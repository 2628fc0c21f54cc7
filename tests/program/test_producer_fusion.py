"""Weight gradients handed to their optimizer piece by piece: the same bits, and only where nobody else looks."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.program.host_passes.pass_list import HOST_PASSES
from engine.program.host_passes.producer_fusion import fuse_producers
from engine.program.program import Program
from engine.program.work.unit_chain import UnitChain
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.engine.running import arguments_for, buffers
from tests.program.programs import training_step

STEPS = 3


def handed(program: Program) -> int:
    """How many compute sets of a program are two in one."""
    return sum(isinstance(s.work, UnitChain) for s in program.compute_sets)


def trained(module: Module, roles: list[str]) -> list[np.ndarray]:
    """The last loss, and all variables after some steps."""
    executable = Executable(build_program(module, roles, {}))
    values = arguments_for(module)
    feeds = [RowFeed(np.concatenate([v] * STEPS)) for v, role in zip(values, roles, strict=True) if role == "feed"]
    held = buffers([v / 8 for v, role in zip(values, roles, strict=True) if role == "variable"])
    return [*executable.run(STEPS, feeds, held), *(h.read() for h in held)]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("batch", "wide"), [(40, 768), (3, 1030), (256, 777), (33, 2048)])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_bits(batch: int, wide: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    module, roles = training_step(batch, wide)
    assert handed(fuse_producers(build_program(module, roles, {}))) == 1
    through_scratch = trained(module, roles)
    monkeypatch.setattr(executables, "HOST_PASSES", tuple(each for each in HOST_PASSES if each is not fuse_producers))
    for one, other in zip(through_scratch, trained(module, roles), strict=True):
        np.testing.assert_array_equal(one, other)


def update(gradient_is_output: bool = False, update_is_read: bool = False, k: int = 32) -> Module:
    """weight -= x^T dy, perhaps with the gradient or the new weight among the outputs."""
    b = Builder()
    weight, x, dy = b.parameter("f32", (512, 128)), b.parameter("f32", (k, 512)), b.parameter("f32", (k, 128))
    gradient = b.dot(x, dy, DotDimensionNumbers((0,), (0,)))
    new = b.subtract(weight, gradient)
    others = [gradient] * gradient_is_output + [b.dot(x, new)] * update_is_read
    return b.module(b.tuple(new, *others) if others else new, {0: 0})


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (update(), 1),
        (update(update_is_read=True), 1),
        (update(gradient_is_output=True), 0),
        (update(k=1024), 0),
    ],
)
def test_only_what_nobody_else_reads_and_nothing_shares(module: Module, expected: int) -> None:
    program = build_program(module, ["variable"] * 3, {})
    count = len(program.compute_sets)
    assert handed(fuse_producers(program)) == expected
    assert (len(program.compute_sets), handed(program)) == (count, 0)


def test_a_writer_whose_input_changes_before_the_reader_stays() -> None:
    b = Builder()
    weight, x, dy = b.parameter("f32", (512, 128)), b.parameter("f32", (32, 512)), b.parameter("f32", (32, 128))
    gradient = b.dot(x, dy, DotDimensionNumbers((0,), (0,)))
    module = b.module(b.tuple(b.subtract(weight, gradient), b.add(x, x), b.add(dy, dy)), {0: 0, 1: 1, 2: 2})
    program = build_program(module, ["variable"] * 3, {})
    names = [s.writes[0].buffer for s in program.compute_sets]
    running = fuse_producers(program)
    values = arguments_for(module)
    held = buffers(values)
    Executable(program).run(1, [], held)
    np.testing.assert_array_equal(held[1].read(), values[1] + values[1])
    np.testing.assert_allclose(held[0].read(), values[0] - values[1].T @ values[2], rtol=1e-4, atol=1e-4)
    assert len(names) - len(running.compute_sets) == handed(running)
