"""Copies for 16-bit products that are stored as float32: which copies, with the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.compile import build_program
from engine.host.convolutions import direct
from engine.host.convolutions.select import select_convolutions
from engine.host.passes import widened_operands
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.widened_operands import widen_operands
from engine.ir import Module, WindowDimension
from engine.ir.builder import Builder
from engine.machine_code.processor import lanes, masks_are_cheap
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import arguments_for, buffers
from tests.lower.test_convolution import HWIO, NHWC, numbers_for


def layer(kind: str, features: int = 6) -> Module:
    """A first layer over one channel; pairs of its outputs are in the lanes, between zeros."""
    b = Builder()
    x, kernel = b.parameter(kind, [8, 28, 28, 1]), b.parameter(kind, [5, 5, 1, features])
    numbers = numbers_for(2, [NHWC, HWIO, NHWC])
    return b.module(b.convolution(x, kernel, (WindowDimension(5, 1, 2, 2),) * 2, numbers))


def by_kernel(kind: str) -> Module:
    """Builds the gradient by the kernel, with overlapping rows of the outputs' gradient."""
    b = Builder()
    x, dy = b.parameter(kind, [8, 28, 28, 1]), b.parameter(kind, [8, 28, 28, 6])
    numbers = numbers_for(2, [[1, 2, 3, 0], [0, 2, 3, 1], [2, 3, 0, 1]])
    window = (WindowDimension(28, 1, 2, 2),) * 2
    return b.module(b.convolution(x, dy, window, numbers))


def products(program: Program) -> list[Contraction]:
    return [each.work for each in program.compute_sets if isinstance(each.work, Contraction)]


@pytest.fixture(autouse=True)
def no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (widened_operands, direct):
        monkeypatch.setattr(module, "multiplies_bf16_pairs", lambda: False)


@pytest.mark.skipif(lanes() < 16 or not masks_are_cheap(), reason="other groups of outputs fill these lanes")
@pytest.mark.parametrize("make", [layer, by_kernel])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_same_bits(make: type[layer], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, results = make(kind), set()
    arguments = arguments_for(module)
    for workers, passes in ((1, HOST_PASSES), (3, HOST_PASSES), (2, tuple(set_aside()))):
        monkeypatch.setattr(executables, "worker_count", lambda workers=workers: workers)
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        executable = Executable(build_program(module, ["variable"] * 2, {}, verify=True))
        assert [each.widened for each in products(executable._running)] == [passes is HOST_PASSES]
        first, again = (executable.run(1, [], buffers(arguments))[0].tobytes() for _ in range(2))
        assert first == again
        results.add(first)
    assert len(results) == 1


def set_aside() -> list[object]:
    return [each for each in HOST_PASSES if each is not widen_operands]


def test_float32_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    program = select_convolutions(build_program(layer("f32"), ["variable"] * 2, {}))
    assert not any(each.widened for each in products(run_passes(program, HOST_PASSES)))


@pytest.mark.parametrize("spoil", ["read elsewhere", "an output", "pairs"])
def test_what_others_read_stays(spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "bf16" if spoil == "pairs" else "f16"
    program = select_convolutions(build_program(layer(kind), ["variable"] * 2, {}))
    (product,) = products(program)
    if spoil == "pairs":
        monkeypatch.setattr(widened_operands, "multiplies_bf16_pairs", lambda: True)
    elif spoil == "an output":
        program = replace(program, outputs=[*program.outputs, product.a.buffer])
    else:
        (at,) = (each for each in program.compute_sets if each.work is product)
        copy = next(each for each in program.compute_sets if each.writes[0].buffer is product.a.buffer)
        reader = replace(copy, reads=at.reads[:1], writes=at.writes)
        program = replace(program, compute_sets=[*program.compute_sets, reader])
    assert widen_operands(program) is program
