"""Sums and products over a graph's edges, without arrays of edges: they have the numbers of separate steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.codelets.language.encoded import CodeletWork
from engine.codelets.rows.edge_products import edge_products
from engine.codelets.rows.scatter_rows import PLAIN_EDGES, SCALED_EDGES
from engine.compile import build_program
from engine.host.passes.edge_products import multiply_edges
from engine.host.passes.edge_sums import sum_edges
from engine.host.passes.pass_list import HOST_PASSES
from engine.ir import GatherDimensionNumbers, Instruction, Module, ScatterDimensionNumbers, Shape, TupleShape
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.runtime.executable import Executable
from tests.engine.running import assert_near, buffers, check, fast, slow

NODES, EDGES = 70, 3000
FUSED = (SCALED_EDGES, PLAIN_EDGES, edge_products)


def rows_of(b: Builder, table: Instruction, ids: Instruction, width: int) -> Instruction:
    """The table's rows of these numbers."""
    named, window = ids.array_shape.dimensions[0], (1, width)
    numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
    shape = table.array_shape.with_dimensions((named, width))
    options: dict[str, Any] = {"gather_dimension_numbers": numbers, "gather_slice_sizes": window}
    return b.instruction("gather", shape, (table, ids), **options)


def graph_step(width: int, kind: str = "s32", *, scaled: bool = True, nodes: int = NODES) -> Module:
    """Returns (sums by target, products of both ends' rows); parameters: rows, old sums, sources, targets, scales."""
    b = Builder()
    table, old = b.parameter("f32", (nodes, width)), b.parameter("f32", (nodes, width))
    source, target = b.parameter(kind, (EDGES,)), b.parameter(kind, (EDGES,))
    scale = b.broadcast(b.parameter("f32", (EDGES,)), (EDGES, width), (0,))
    sent, met = rows_of(b, table, source, width), rows_of(b, old, target, width)
    body, total = Builder("sum"), Builder("total")
    summed = b.instruction(
        "scatter",
        old.shape,
        (old, target, b.multiply(scale, sent) if scaled else sent),
        (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
        scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
    )
    products = b.instruction(
        "reduce",
        Shape("f32", (EDGES,)),
        (b.multiply(sent, met), b.constant(0.0)),
        (total.build(total.add(total.parameter("f32"), total.parameter("f32"))),),
        dimensions=(1,),
    )
    results = (summed, products)
    root = b.instruction("tuple", TupleShape(tuple(each.array_shape for each in results)), results)
    return Module("step", b.build(root))


def arguments(module: Module, *, is_sorted: bool = False, special: bool = False) -> list[np.ndarray]:
    """Numbers of rows, some of which do not exist; with `special` also NaN, infinities, zeros and tiny numbers."""
    rng = np.random.default_rng(5)
    values = []
    for parameter in module.entry.parameters:
        shape = parameter.array_shape
        if shape.dtype.kind == "i":
            ids = rng.integers(-3, NODES + 4, shape.dimensions).astype(shape.dtype)
            values.append(np.sort(ids) if is_sorted else ids)
        else:
            values.append(rng.normal(size=shape.dimensions).astype(shape.dtype))
            if special:
                places = rng.integers(0, values[-1].size, 9)
                values[-1].reshape(-1)[places] = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-38, -1e-38, 1e-45, np.inf]
    return values


def program_of(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {}, verify=True)


def fused(program: Program) -> int:
    works = [each.work for each in Executable(program)._running.compute_sets]
    return sum(isinstance(work, CodeletWork) and work.codelet in FUSED for work in works)


def outputs(program: Program, values: list[np.ndarray]) -> list[np.ndarray]:
    return Executable(program).run(1, [], buffers(values))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("width", "kind"), [(7, "s32"), (16, "s64"), (33, "s32"), (96, "s32")])
def test_the_numbers_of_separate_steps(width: int, kind: str, scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = graph_step(width, kind, scaled=scaled)
    program = program_of(module)
    assert fused(program) == 2
    check(module, arguments(module, is_sorted=True))
    for special in (False, True):
        values, received = arguments(module, special=special), []
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
        for count in (1, 2, 3):
            monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=count: count)
            received.append(outputs(program, values))
        assert len({tuple(each.tobytes() for each in result) for result in received}) == 1
        with monkeypatch.context() as patch:
            kept = tuple(each for each in HOST_PASSES if each not in (sum_edges, multiply_edges))
            patch.setattr("engine.runtime.encode.HOST_PASSES", kept)
            assert not fused(program)
            separate = outputs(program, values)
        assert scaled or received[0][0].tobytes() == separate[0].tobytes()
        for one, other in zip(received[0], separate, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def scaled_blocks(ids: tuple[int, ...], row: tuple[int, ...], scales: tuple[int, ...]) -> Module:
    """Sums by target of gathered rows times `scales`, which has the leading dimensions of ids and rows."""
    b = Builder()
    table, old = b.parameter("f32", (NODES, *row)), b.parameter("f32", (NODES, *row))
    source, target = b.parameter("s32", ids), b.parameter("s32", ids)
    scale = b.broadcast(b.parameter("f32", scales), (*ids, *row), tuple(range(len(scales))))
    windows = tuple(range(len(ids), len(ids) + len(row)))
    numbers = GatherDimensionNumbers(windows, (0,), (0,), len(ids))
    options: dict[str, Any] = {"gather_dimension_numbers": numbers, "gather_slice_sizes": (1, *row)}
    sent = b.instruction("gather", Shape("f32", (*ids, *row)), (table, source), **options)
    body = Builder("sum")
    summed = b.instruction(
        "scatter",
        old.shape,
        (old, target, b.multiply(scale, sent)),
        (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
        scatter_dimension_numbers=ScatterDimensionNumbers(windows, (0,), (0,), len(ids)),
    )
    return Module("step", b.build(summed))


@pytest.mark.parametrize(
    ("ids", "row", "scales"),
    [((EDGES,), (4, 16), (EDGES, 4)), ((300, 10), (16,), (300,)), ((EDGES,), (4, 16), (EDGES,))],
    ids=["a scale per head", "a scale per bag", "a scale per edge"],
)
def test_scales_of_other_than_edges(ids: tuple[int, ...], row: tuple[int, ...], scales: tuple[int, ...]) -> None:
    module = scaled_blocks(ids, row, scales)
    check(module, arguments(module))


@pytest.mark.parametrize("ids", [(0,), (300, 0), (0, 10), (1,)])
def test_no_edges_and_one(ids: tuple[int, ...]) -> None:
    module = scaled_blocks(ids, (16,), ids)
    check(module, arguments(module))


def test_rows_that_the_sums_replace_are_gathered_before() -> None:
    module = graph_step(16)
    module = Module("step", module.entry, {0: 0})
    for received, expected in zip(fast(module, arguments(module)), slow(module, arguments(module)), strict=True):
        for one, other in zip(received, expected, strict=True):
            assert_near(one, other)
