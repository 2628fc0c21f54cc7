"""Whole training steps traced from Keras: the engine's three steps are the definitions' three steps."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine.compile import build_program, compile_module
from engine.evaluated_executable import EvaluatedExecutable
from engine.host.passes.divided_units import divide_units
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import Module
from engine.program.program import ComputeSet
from engine.program.run_passes import run_passes
from engine.program.syncs import ranges_of
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.hlo import import_hlo
from tests.engine.running import assert_near, buffers
from tests.program.machine import Machine

DATA = Path(__file__).parent.parent / "data"
NAMES = ("mlp", "lenet", "resnet")
STEPS = 3


@cache
def module_of(name: str) -> Module:
    return import_hlo((DATA / f"{name}.hlo").read_bytes())


def beginning(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows for all steps, and the variables' first values."""
    rng = np.random.default_rng(0)
    x, y, *variables = (p.array_shape for p in module_of(name).entry.parameters)
    images = rng.normal(size=(STEPS * x.dimensions[0], *x.dimensions[1:])).astype(np.float32)
    labels = rng.integers(0, 10, STEPS * y.dimensions[0]).astype(np.int32)
    values = []
    for shape, state in zip(variables, json.loads((DATA / f"{name}.json").read_text()), strict=True):
        random = rng.normal(size=shape.dimensions) * state.get("scale", 0.0)
        values.append(np.asarray(random + state.get("fill", 0.0)).astype(shape.dtype))
    return [images, labels], values


def roles_of(name: str) -> list[str]:
    return ["feed", "feed"] + ["variable"] * (len(module_of(name).entry.parameters) - 2)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NAMES)
def test_three_steps(name: str) -> None:
    feeds, values = beginning(name)
    found = []
    for kind in (compile_module, EvaluatedExecutable):
        held = buffers(values)
        executable = kind(module_of(name), roles_of(name), {})
        outputs = executable.run(STEPS, [RowFeed(f) for f in feeds], held, "all")
        found.append([*outputs, *(h.read() for h in held)])
    assert np.isfinite(found[0][0]).all()
    for one, other in zip(*found, strict=True):
        assert_near(one, other, 1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_loss_falls_when_the_same_rows_come_again(name: str) -> None:
    feeds, values = beginning(name)
    batch = len(feeds[0]) // STEPS
    rows = np.tile(np.arange(batch), 60)
    executable = compile_module(module_of(name), roles_of(name), {}, verify=True)
    held = buffers(values)
    accuracy, loss = executable.run(60, [RowFeed(f, rows) for f in feeds], held, "all")
    # Both are means over all steps so far.
    assert loss[-1] < 0.8 * loss[0]
    assert accuracy[-1] > accuracy[0] + 0.3


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_for_any_number_of_workers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    feeds, values = beginning(name)
    executable = compile_module(module_of(name), roles_of(name), {})
    found = []
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")  # a number is given
    for workers in (1, 2, 3, 8, 32):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=workers: count)
        held = buffers(values)
        outputs = executable.run(STEPS, [RowFeed(f) for f in feeds], held, "all")
        found.append([o.tobytes() for o in outputs] + [h.read().tobytes() for h in held])
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("name", ["lenet", "resnet"])
def test_loads_of_up_to_64_workers(name: str) -> None:
    """No more uneven than by the program's units, and less where these are fewer than the workers."""
    program = build_program(module_of(name), roles_of(name), {})
    undivided = tuple(each for each in HOST_PASSES if each is not divide_units)
    before, after = (run_passes(program, passes).compute_sets for passes in (undivided, HOST_PASSES))
    for workers in range(1, 65):
        assert busiest(after, workers) <= 1.02 * busiest(before, workers), workers  # a last unit is often shorter
    assert busiest(after, 32) < 0.9 * busiest(before, 32)


def busiest(sets: list[ComputeSet], workers: int) -> float:
    """The work of the busiest worker in each compute set, summed."""
    return sum(
        each.work_estimate.total * max(end - begin for begin, end in ranges_of(each, workers)) / max(each.units, 1)
        for each in sets
    )


@pytest.mark.parametrize("name", NAMES)
def test_unit_by_unit_in_guarded_memory(name: str) -> None:
    """Units run in reverse order without memory plan, workers and syncs. Only flushed denormals change the bits."""
    feeds, values = beginning(name)
    batch = len(feeds[0]) // STEPS
    executable = compile_module(module_of(name), roles_of(name), {})
    held = buffers(values)
    outputs = executable.run(1, [RowFeed(f) for f in feeds], held)
    arguments = dict(enumerate([*(f[:batch] for f in feeds), *values]))
    machine = Machine(executable.program, arguments)
    for one, other in zip(outputs, machine.run(lambda units: reversed(range(units))), strict=True):
        assert_near(one, other, 1e-6)
    for number, variable in zip(sorted(executable.program.variables), held, strict=True):
        assert_near(variable.read(), machine.variable(number), 1e-6)
