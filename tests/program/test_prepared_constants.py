"""Constant weights are packed or transformed before the first step, with the bits of doing so in each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.codelets.products.pack_panels import PanelPacking
from engine.compile import compile_module
from engine.debug.executable import DebugExecutable
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.prepared_constants import prepare_constants
from engine.ir import ConvolutionDimensionNumbers, DotDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.machine_code.processor import has_matrix_registers
from engine.runtime import encode
from engine.runtime.executable import Executable
from engine.runtime.feeds import RowFeed
from engine.runtime.make_executable import made_by
from tests.program.loop_parts import below, loop, next_count

Size = tuple[int, ...]
needs_registers = pytest.mark.skipif(not has_matrix_registers(), reason="no matrix registers here")
WITHOUT = tuple(each for each in HOST_PASSES if each is not prepare_constants)


def products(rows: int, k: int, columns: int, transposed: bool = False) -> tuple[Module, list[Size]]:
    """Products by two weights of the same shape, which must not share memory."""
    b = Builder()
    x, size = b.parameter("f32", (rows, k)), (columns, k) if transposed else (k, columns)
    numbers = DotDimensionNumbers((1,), (1 if transposed else 0,))
    results = [b.dot(x, b.parameter("f32", size), numbers) for _ in range(2)]
    return b.module(b.tuple(*results)), [(rows, k), size, size]


def convolutions(images: int, rows: int, features: int) -> tuple[Module, list[Size]]:
    """Two successive convolutions by kernels of the same shape."""
    b = Builder()
    window = WindowDimension(3, padding_low=1, padding_high=1)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    size, kernel = (images, rows, rows, features), (3, 3, features, features)
    x = b.parameter("f32", size)
    for _ in range(2):
        x = b.convolution(x, b.parameter("f32", kernel), (window, window), numbers)
    return b.module(b.tuple(x)), [size, kernel, kernel]


def beside_a_loop(rows: int, size: int) -> tuple[Module, list[Size]]:
    """Products by constants before, in and after a loop; the loop's product packs its weights in each iteration."""
    b = Builder()
    x, *weights = b.parameter("f32", (rows, size)), *(b.parameter("f32", (size, size)) for _ in range(3))
    numbers = DotDimensionNumbers((1,), (0,))
    state = [b.constant(0, "s32"), b.elementwise("tanh", b.dot(x, weights[0], numbers)), weights[1]]
    _, y, _ = loop(
        *(b, state, below(3)),
        lambda s, e: [next_count(s, e[0]), s.elementwise("tanh", s.dot(e[1], e[2], numbers)), e[2]],
    )
    return b.module(b.tuple(y, b.dot(y, weights[2], numbers))), [(rows, size), *[(size, size)] * 3]


CASES = {
    "few rows": products(3, 131, 128),
    "a row": products(1, 300, 64),
    "units of columns": products(64, 128, 128),
    "wide": products(256, 640, 1024),
    "transposed": products(40, 257, 64, transposed=True),
    "convolutions": convolutions(4, 16, 32),
    "small convolutions": convolutions(1, 7, 64),
    "many rows": products(400, 129, 192),
}


SPLIT = {
    "one block of k": products(256, 500, 520),
    "odd columns": products(300, 1100, 331),
    "rows kept for many columns": products(256, 513, 1024),
    "transposed": products(256, 1030, 272, transposed=True),
}
"""Products on matrix registers, also with a last block of k and a last group of columns that are not whole."""


def bits(case: tuple[Module, list[Size]], special: float = 0.0, **more: Any) -> tuple[Executable, list[bytes]]:
    """The executable, and the results of single calls for two feeds in turn and of a call of several steps."""
    module, sizes = case
    rng = np.random.default_rng(0)
    first, *weights, second = (rng.normal(size=size).astype(np.float32) for size in (*sizes, sizes[0]))
    for each in weights if special else ():
        each.flat[[7, each.size // 2]] = special
    roles = ["feed"] + ["constant"] * len(weights)
    executable = compile_module(module, roles, {k + 1: each for k, each in enumerate(weights)}, **more)
    calls = [executable.run(1, [RowFeed(each)], []) for each in (first, second, first)]
    calls.append(executable.run(2, [RowFeed(np.concatenate([first, second]))], [], "all"))
    return executable, [each.tobytes() for results in calls for each in results]


def prepared(
    case: tuple[Module, list[Size]], monkeypatch: pytest.MonkeyPatch, amx: str = "0", special: float = 0.0
) -> Executable:
    """The executable of a program, after asserting the results without prepared constants on one worker and on two."""
    found = []
    monkeypatch.setenv("SOFTWARE_IPU_AMX", amx)
    for passes in (WITHOUT, HOST_PASSES):
        monkeypatch.setattr(encode, "HOST_PASSES", passes)
        for workers in (1, 2):
            monkeypatch.setenv("NUMBA_NUM_THREADS", str(workers))
            monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
            executable, made = bits(case, special)
            found.append(made)
    assert all(each == found[0] for each in found)
    return executable


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_weights_prepared_in_each_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = prepared(CASES[name], monkeypatch)
    once = [each for each in executable._running.compute_sets if each.once]
    assert len(once) == 2
    assert not {each.name for each in once} & {each.name for _, b in executable._tables.values() for each in b.sets}


@needs_registers
@pytest.mark.parametrize("special", [0.0, np.inf, 2.0**30])
@pytest.mark.parametrize("name", SPLIT)
def test_parts_for_matrix_registers_have_the_bits_of_splits_in_each_step(
    name: str, special: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of columns that splits cannot compute are multiplied from the weights themselves."""
    executable = prepared(SPLIT[name], monkeypatch, "1", special)
    once = [each.work for each in executable._running.compute_sets if each.once]
    assert [isinstance(each, PanelPacking) and each.bf16x3 for each in once] == [True, True]


@needs_registers
def test_checked_execution_reads_only_the_parts_that_were_stored() -> None:
    with made_by(DebugExecutable):
        _, made = bits(SPLIT["odd columns"], np.inf)
    assert made == bits(SPLIT["odd columns"], np.inf)[1]


def test_weights_beside_a_loop_are_prepared_and_those_in_it_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = prepared(beside_a_loop(5, 128), monkeypatch)
    assert [each.once for each in executable._running.compute_sets].count(True) == 2


def test_checked_execution_reads_only_what_was_prepared() -> None:
    with made_by(DebugExecutable):
        _, made = bits(CASES["few rows"])
    assert made == bits(CASES["few rows"])[1]


def test_loops_and_variables_prepare_nothing() -> None:
    module, sizes = CASES["few rows"]
    program = compile_module(module, ["feed", "variable", "constant"], {2: np.ones(sizes[2], np.float32)})
    assert [each.once for each in program._running.compute_sets].count(True) == 1
