"""Compute sets run together unit by unit: the same bits, only if units allow it; results of one reader in scratch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compile import build_program
from engine.host import unit_chain
from engine.host.convolutions import winograd as convolutions
from engine.host.convolutions.winograd_work import WinogradProduct
from engine.host.passes import split_products
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.unit_fusion import fuse_units
from engine.host.unit_chain import UnitChain
from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.ir.builder import Builder
from engine.program import product_units
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.contraction import Contraction
from engine.runtime import encode
from engine.runtime import executable as executables
from engine.runtime.executable import Executable
from tests.engine.running import arguments_for, buffers, check
from tests.program.test_winograd import convolution


def reduced(b: Builder, x: Instruction, opcode: str, start: float, *dimensions: int) -> Instruction:
    return b.reduce(x, b.constant(start), dimensions, opcode)


def softmax(b: Builder, scores: Instruction) -> Instruction:
    shape = scores.array_shape.dimensions
    kept = tuple(range(len(shape) - 1))
    most = reduced(b, scores, "maximum", -np.inf, len(shape) - 1)
    powers = b.elementwise("exponential", b.subtract(scores, b.broadcast(most, shape, kept)))
    total = reduced(b, powers, "add", 0.0, len(shape) - 1)
    return b.divide(powers, b.broadcast(total, shape, kept))


def attention(batch: int, heads: int, rows: int, size: int, shares_too: bool = False) -> Module:
    """Computes softmax(q k^T) v for each head of each sample."""
    b = Builder()
    q, k, v = (b.parameter("f32", (batch, heads, rows, size)) for _ in range(3))
    shares = softmax(b, b.dot(q, k, DotDimensionNumbers((3,), (3,), (0, 1), (0, 1))))
    result = b.dot(shares, v, DotDimensionNumbers((3,), (2,), (0, 1), (0, 1)))
    return b.module(b.tuple(result, shares) if shares_too else result)


def normalized(rows: int, size: int) -> Module:
    """Rows less their means, divided by the root of their mean square, and the sums of the columns."""
    b = Builder()
    x, y = b.parameter("f32", (rows, size)), b.parameter("f32", (rows, size))
    x = b.add(x, b.elementwise("tanh", y))
    inverse = b.splat(1 / size, (rows,))
    mean = b.multiply(reduced(b, x, "add", 0.0, 1), inverse)
    apart = b.subtract(x, b.broadcast(mean, (rows, size), (0,)))
    variance = b.multiply(reduced(b, b.multiply(apart, apart), "add", 0.0, 1), inverse)
    factor = b.elementwise("rsqrt", b.add(variance, b.splat(1e-3, (rows,))))
    result = b.multiply(apart, b.broadcast(factor, (rows, size), (0,)))
    return b.module(b.tuple(x, result, reduced(b, result, "add", 0.0, 0)))


def made(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def chained(module: Module) -> list[str]:
    return [s.name for s in fuse_units(made(module)).compute_sets if isinstance(s.work, UnitChain)]


MODULES = [
    attention(4, 8, 64, 32),
    attention(3, 7, 37, 19, shares_too=True),
    attention(2, 9, 65, 40),
    normalized(1024, 256),
    normalized(1021, 130),
    normalized(515, 96),
]


@pytest.mark.parametrize("number", range(len(MODULES)))
def test_the_same_values(number: int) -> None:
    assert chained(MODULES[number])
    check(MODULES[number], tolerance=3e-5)


@pytest.mark.parametrize("number", range(len(MODULES)))
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_bits(number: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "worker_count", lambda: workers)
    monkeypatch.setattr(executables, "inline_work", lambda: 0)
    module = MODULES[number]
    values = arguments_for(module)
    values[0].flat[:3] = np.nan, np.inf, -0.0
    as_chains = Executable(made(module)).run(2, [], buffers(values))
    monkeypatch.setattr(encode, "HOST_PASSES", tuple(each for each in HOST_PASSES if each is not fuse_units))
    one_by_one = Executable(made(module)).run(2, [], buffers(values))
    assert [each.tobytes() for each in as_chains] == [each.tobytes() for each in one_by_one]


@pytest.mark.parametrize("rows", [64, 60, 37])
def test_heads_too_large_for_a_cache_are_cut_into_blocks_of_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """37 rows are not cut into blocks; the bits are those of whole heads."""
    module = attention(4, 8, rows, 16, shares_too=True)
    values = arguments_for(module)
    whole = Executable(made(module)).run(1, [], buffers(values))
    for name, size in (("LARGE_BATCH", 1), ("BLOCK_ELEMENTS", 1200)):
        monkeypatch.setattr(product_units, name, size)
    program = made(module)
    blocks = {64: 4, 60: 3, 37: 1}[rows]
    units = [each.units for each in program.compute_sets if isinstance(each.work, Contraction)]
    assert units == [32 * blocks] * 2
    assert any(isinstance(each.work, UnitChain) for each in fuse_units(program).compute_sets)
    check(module, tolerance=3e-5)
    assert [a.tobytes() for a in Executable(program).run(1, [], buffers(values))] == [a.tobytes() for a in whole]


def test_links_call_code_by_addresses_in_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution's transformed product calls the transforms of its tiles."""
    monkeypatch.setenv("SOFTWARE_IPU_AMX", "0")
    monkeypatch.setattr(convolutions, "WORTH", np.inf)
    module = convolution(2, 8, 9, 16, 24)
    values = arguments_for(module)
    apart = run_passes(made(module), HOST_PASSES)
    linked = [
        unit_chain.chained([each], {}) if isinstance(each.work, WinogradProduct) else each
        for each in apart.compute_sets
    ]
    assert any(isinstance(each.work, UnitChain) for each in linked)
    monkeypatch.setattr(encode, "HOST_PASSES", ())
    results = [Executable(each).run(1, [], buffers(values))[0] for each in (apart, replace(apart, compute_sets=linked))]
    np.testing.assert_array_equal(*results)


def test_results_with_one_reader_take_no_memory() -> None:
    module = attention(4, 8, 64, 32)
    program = made(module)
    running = fuse_units(program)
    assert len(running.compute_sets) == 1 < len(program.compute_sets)
    (only,) = running.compute_sets
    assert {s.buffer for s in only.writes} == set(program.outputs)
    assert Executable(program).plan.arena_bytes == 4 * 4 * 8 * 64 * 32


def test_an_output_is_written() -> None:
    program = made(attention(4, 8, 64, 32, shares_too=True))
    written = {s.buffer for each in fuse_units(program).compute_sets for s in each.writes}
    assert written == set(program.outputs)


def test_a_unit_that_needs_others_waits() -> None:
    b = Builder()
    x = b.parameter("f32", (512, 512))
    turned = b.transpose(b.elementwise("exponential", x), (1, 0))
    total = reduced(b, b.multiply(x, turned), "add", 0.0, 1)
    module = b.module(b.multiply(turned, b.broadcast(total, (512, 512), (1,))))
    check(module)
    for each in fuse_units(made(module)).compute_sets:
        spans = {}
        for span in (*each.reads, *each.writes):
            spans.setdefault(span.buffer, set()).add(span.partition)
        written = {s.buffer for s in each.writes}
        assert all(None not in found and len(found) == 1 for buffer, found in spans.items() if buffer in written)


def test_products_that_are_split_stay_out_of_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a worker's cache may decide on fusion, but not on bits."""
    monkeypatch.setattr(split_products, "_pays", lambda _: True)
    monkeypatch.setattr(split_products, "may_use_matrix_registers", lambda: True)
    sets = run_passes(made(attention(4, 8, 64, 32)), HOST_PASSES).compute_sets
    assert sum(isinstance(each.work, Contraction) and each.work.bf16x3 for each in sets) == 2


def test_small_arrays_stay_as_they_are() -> None:
    assert not chained(attention(2, 2, 16, 8))
