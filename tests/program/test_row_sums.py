"""Gradients of embedding tables are added up where they are read: the dense bits without the dense gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.codelets.rows.row_sums import SummedRows
from engine.compile import build_program, compile_module
from engine.evaluate import evaluate
from engine.host.passes import row_sums as rewriting
from engine.ir import Instruction, Module, ScatterDimensionNumbers, Shape, TupleShape
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.verifier import verify
from tests.engine.running import assert_near, buffers, check, fast
from tests.program.machine import Machine

Dimensions = tuple[int, ...]


def numbers_of(ids: Dimensions, vector: bool, table: Dimensions) -> ScatterDimensionNumbers:
    positions = len(ids) - vector
    window = tuple(range(positions, positions + len(table) - 1))
    return ScatterDimensionNumbers(window, (0,), (0,), positions)


def adam_step(
    table: Dimensions = (1024, 64),
    ids: Dimensions = (50,),
    *,
    vector: bool = False,
    kind: str = "s32",
    repeated: bool = False,
    read_twice: bool = False,
    reversed_reader: bool = False,
    squares: bool = False,
    other_ids: bool = False,
) -> Module:
    """(table', momentum') of one update that changes every row; parameters: table, momentum, ids, rows, rate.

    With `squares` the momentum is updated by sums of squares of rows, with the same ids or others.
    """
    b = Builder()
    old, momentum = b.parameter("f32", table), b.parameter("f32", table)
    named = b.parameter(kind, ids)
    positions = ids[: len(ids) - vector]
    shape = (*positions, *table[1:])
    if repeated:
        few = b.parameter("f32", (shape[0], *table[1:]))
        rows = b.broadcast(few, shape, (0, *range(len(positions), len(shape))))
    else:
        rows = b.parameter("f32", shape)
    rate = b.broadcast(b.parameter("f32"), table, ())

    def summed(ids_of_rows: Instruction, added: Instruction) -> Instruction:
        body = Builder("sum")
        return b.instruction(
            "scatter",
            old.shape,
            (b.splat(0.0, table), ids_of_rows, added),
            (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
            scatter_dimension_numbers=numbers_of(ids, vector, table),
        )

    gradient = summed(named, rows)
    results: list[Instruction] = []
    read = b.instruction("reverse", old.shape, (gradient,), dimensions=(0,)) if reversed_reader else gradient
    if squares or other_ids:
        numbers = b.instruction("reverse", named.shape, (named,), dimensions=(0,)) if other_ids else named
        read = summed(numbers, b.multiply(rows, rows))
    new_momentum = b.add(momentum, b.multiply(b.subtract(read, momentum), rate))
    new = b.subtract(old, b.multiply(new_momentum, b.add(rate, gradient) if squares or other_ids else rate))
    results += [new, new_momentum]
    if read_twice:
        results.append(gradient)
    root = b.instruction("tuple", TupleShape(tuple(r.array_shape for r in results)), tuple(results))
    return Module("step", b.build(root), {0: 0, 1: 1})


def as_outputs(module: Module) -> Module:
    """The module, with separate memory for results."""
    return Module(module.name, module.entry, {})


def arguments(module: Module, seed: int = 0) -> list[np.ndarray]:
    """Ids of few rows with repetitions, with the first and the last row and numbers outside; some rows are -0."""
    rng = np.random.default_rng(seed)
    shapes: list[Shape] = [p.array_shape for p in module.entry.parameters]
    rows = shapes[0].dimensions[0]
    values: list[np.ndarray] = [rng.normal(size=s.dimensions).astype(s.dtype) for s in shapes]
    low = 0 if shapes[2].dtype.kind == "u" else -2
    ids = rng.integers(low, rows + 2, shapes[2].dimensions).astype(shapes[2].dtype)
    ids.reshape(-1)[::3] = rows // 2
    ids.reshape(-1)[:2] = (0, rows - 1)[: ids.size]
    values[2] = ids
    values[3].reshape(-1)[: values[3].size // 3] = -0.0
    return values


def is_summed_where_read(program: Program) -> bool:
    return any(isinstance(each.work, SummedRows) for each in program.compute_sets)


def program_of(module: Module) -> Program:
    """The module's program, with sums of rows where they are read."""
    before = build_program(module, ["variable"] * len(module.entry.parameters), {}, verify=True)
    program = rewriting.fuse_row_sums(before)
    verify(program)
    return program


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one id": {"ids": (1,)},
    "index vectors": {"ids": (37, 1), "vector": True},
    "batch of sequences": {"ids": (5, 7)},
    "repeated rows": {"ids": (5, 7), "repeated": True},
    "repeated rows, vectors": {"ids": (6, 9, 1), "vector": True, "repeated": True},
    "s64": {"kind": "s64"},
    "u8": {"kind": "u8", "table": (200, 64)},
    "odd width": {"table": (1001, 17)},
    "rows of one": {"table": (9001, 1), "ids": (300,)},
    "one wide row to a chunk": {"table": (9, 5003), "ids": (18,)},
    "table of matrices": {"table": (513, 3, 20)},
    "squares": {"squares": True},
    "squares, odd width": {"squares": True, "table": (1001, 17)},
    "squares of repeated rows": {"squares": True, "ids": (6, 9, 1), "vector": True, "repeated": True},
    "other ids": {"other_ids": True},
    "more ids than rows": {"table": (300, 40), "ids": (600,)},
    "many ids of few bytes": {"table": (300, 40), "ids": (1600,)},
    "many bytes of few ids": {"table": (1024, 64), "ids": (2000,)},
}


@pytest.mark.parametrize("case", CASES)
def test_as_defined(case: str) -> None:
    module = adam_step(**CASES[case])
    assert is_summed_where_read(program_of(module))
    expected = evaluate(module, arguments(module))
    _, held = fast(module, arguments(module))
    for received, value in zip(held, expected, strict=False):
        np.testing.assert_allclose(received, value, atol=1e-4)
    module = as_outputs(module)
    program = program_of(module)
    assert is_summed_where_read(program)
    one_by_one = Machine(program, dict(enumerate(arguments(module)))).run(lambda units: reversed(range(units)))
    for received, value in zip(one_by_one, expected, strict=True):
        assert_near(received, value, 1e-4)
    check(module, arguments(module))


@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_the_dense_gradient(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = adam_step(**CASES[case])
    _, received = fast(module, arguments(module))
    monkeypatch.setattr(rewriting, "LEAST_BYTES", 1 << 40)
    assert not is_summed_where_read(program_of(module))
    _, expected = fast(module, arguments(module))
    for one, other in zip(received, expected, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("squares", "tables"), [({"squares": True}, 2), ({"other_ids": True}, 1)])
def test_tables_with_the_same_ids_are_summed_together(squares: dict[str, bool], tables: int) -> None:
    program = program_of(adam_step(**squares))
    (work,) = (each.work for each in program.compute_sets if isinstance(each.work, SummedRows))
    assert len(work.tables) == tables
    written = [span.buffer for each in program.compute_sets for span in each.writes if span.buffer.kind == "arena"]
    whole = [buffer for buffer in written if buffer.shape == Shape("f32", (1024, 64))]
    assert bool(whole) == (tables == 1)


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("squares", [False, True])
def test_any_number_of_workers(workers: int, squares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = adam_step((4099, 40), (33, 11), repeated=True, squares=squares)
    roles = ["variable"] * 5
    held = []
    for count in (1, workers):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=count: count)
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
        variables = buffers(arguments(module))
        compile_module(module, roles, {}).run(3, [], variables)
        held.append([v.read().tobytes() for v in variables])
    assert held[0] == held[1]


def test_no_dense_gradient_and_no_repeated_rows_are_left() -> None:
    program = program_of(adam_step(ids=(5, 7), repeated=True))
    written = [span.buffer for each in program.compute_sets for span in each.writes if span.buffer.kind == "arena"]
    assert sorted(str(buffer.shape) for buffer in written) == ["s64[16]", "s64[35]"]


@pytest.mark.parametrize(
    "options",
    [{"read_twice": True}, {"reversed_reader": True}, {"table": (100, 20)}, {"table": (300, 40), "ids": (1700,)}],
)
def test_others_stay_dense(options: dict[str, Any]) -> None:
    module = adam_step(**options)
    assert not is_summed_where_read(program_of(module))
    check(as_outputs(module), arguments(module))


def test_two_tables_share_their_zeros() -> None:
    b = Builder()
    shape, results = (1024, 32), []
    zeros = b.splat(0.0, shape)
    for _ in range(2):
        old, ids, rows = b.parameter("f32", shape), b.parameter("s32", (20,)), b.parameter("f32", (20, 32))
        body = Builder("sum")
        gradient = b.instruction(
            "scatter",
            old.shape,
            (zeros, ids, rows),
            (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
            scatter_dimension_numbers=numbers_of((20,), False, shape),
        )
        results.append(b.subtract(b.multiply(old, old), gradient))
    root = b.instruction("tuple", TupleShape(tuple(r.array_shape for r in results)), tuple(results))
    module = Module("step", b.build(root), {0: 0, 3: 1})
    program = program_of(module)
    assert [isinstance(each.work, SummedRows) for each in program.compute_sets].count(True) == 2
    assert not any(
        span.buffer.shape == Shape("f32", shape) and span.buffer.kind == "arena"
        for each in program.compute_sets
        for span in each.writes
    )
    check(as_outputs(module))
