"""Weight gradients passed to their optimizer slice by slice: the same bits, and only without other readers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes import split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.producer_fusion import fuse_producers
from engine.host.unit_chain import UnitChain
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.machine_code.costs import MEASURED
from engine.program.program import Program
from engine.program.work.copy import Copy
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from tests.engine.running import arguments_for, buffers, check
from tests.program.loop_parts import below, loop, next_count, scaled
from tests.program.programs import training_step

STEPS = 3


def handed(program: Program) -> int:
    """The number of compute sets of a program that chain two."""
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
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    module, roles = training_step(batch, wide)
    assert handed(fuse_producers(build_program(module, roles, {}))) == 1
    through_scratch = trained(module, roles)
    monkeypatch.setattr(encode, "HOST_PASSES", tuple(each for each in HOST_PASSES if each is not fuse_producers))
    for one, other in zip(through_scratch, trained(module, roles), strict=True):
        np.testing.assert_array_equal(one, other)


def update(
    gradient_is_output: bool = False, update_is_read: bool = False, k: int = 32, rows: int = 512, columns: int = 128
) -> Module:
    """Computes weight -= x^T dy, perhaps with the gradient or the new weight among the outputs."""
    b = Builder()
    weight, x, dy = (b.parameter("f32", shape) for shape in ((rows, columns), (k, rows), (k, columns)))
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
        # Each unit would read all of a right operand that is far larger than a cache.
        (update(k=128, rows=256, columns=6_000), 0),
    ],
)
def test_only_results_with_one_reader_are_fused(module: Module, expected: int) -> None:
    program = build_program(module, ["variable"] * 3, {})
    count = len(program.compute_sets)
    assert handed(fuse_producers(program)) == expected
    assert (len(program.compute_sets), handed(program)) == (count, 0)


def training_steps(in_loop: bool, updates: bool = True) -> Module:
    """Computes weight -= x^T (x weight) / 512, once or in a loop of three iterations; or returns the new weight."""

    def step(b: Builder, elements: Sequence[Instruction]) -> list[Instruction]:
        count, weight, x = elements
        gradient = b.dot(x, b.dot(x, weight), DotDimensionNumbers((0,), (0,)))
        return [next_count(b, count), b.subtract(weight, scaled(b, gradient, 1 / 512)), x]

    b = Builder()
    weight, x = b.parameter("f32", (512, 256)), b.parameter("f32", (32, 512))
    state = [b.constant(0, "s32"), weight, x]
    return b.module(loop(b, state, below(3), step)[1] if in_loop else step(b, state)[1], {0: 0} if updates else {})


def test_iterations_that_update_weights_are_divided_as_steps_are() -> None:
    alone, looped = (build_program(training_steps(k), ["variable"] * 2, {}) for k in (False, True))
    divided = [
        [(type(each.work).__name__, each.units) for each in p.compute_sets if not isinstance(each.work, Copy)]
        for p in (alone, looped)
    ]
    assert divided[0] == divided[1] and divided[0][0][1] > 1
    assert handed(fuse_producers(alone)) == handed(fuse_producers(looped)) == 1
    check(training_steps(in_loop=True, updates=False))


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


@pytest.mark.parametrize(("k", "registers", "expected"), [(256, True, 0), (32, True, 1), (256, False, 1)])
def test_not_where_matrix_registers_are_faster(
    k: int, registers: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_products, "may_use_matrix_registers", lambda: registers)
    monkeypatch.setattr(split_products, "costs", lambda: MEASURED["amx-bf16"])
    program = build_program(update(k=k, rows=1024, columns=1024), ["variable"] * 3, {})
    assert handed(fuse_producers(program)) == expected
