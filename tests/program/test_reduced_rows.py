"""Norms and tests of infinities of embedding tables' gradients, computed from named rows, have the bits of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from engine.codelets.rows.reduced_rows import ReducedRowsWork
from engine.compile import build_program, compile_module
from engine.debug import DebugExecutable
from engine.host.passes import row_sums
from engine.ir import Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.program.program import Program
from tests.engine.running import buffers, check
from tests.program.test_row_sums import numbers_of, program_of

Dimensions = tuple[int, int]
KINDS = ["squares", "finite"]


def clipped(table: Dimensions = (3001, 20), named: int = 60, kind: str = "squares", weigh: bool = False) -> Module:
    """A table less its gradient divided by a reduction, and the reduction; parameters: table, ids, rows."""
    b = Builder()
    old, ids, rows = b.parameter("f32", table), b.parameter("s32", (named,)), b.parameter("f32", (named, table[1]))
    body, total = Builder("sum"), Builder("total")
    gradient = b.instruction(
        "scatter",
        old.shape,
        (b.splat(0.0, table), ids, rows),
        (body.build(body.add(body.parameter("f32"), body.parameter("f32"))),),
        scatter_dimension_numbers=numbers_of((named,), False, table),
    )
    if kind == "squares":
        combine = total.build(total.add(total.parameter("f32"), total.parameter("f32")))
        squares = b.multiply(gradient, old if weigh else gradient)
        found = reduced = b.instruction(
            "reduce", Shape("f32"), (squares, b.constant(0.0)), (combine,), dimensions=(0, 1)
        )
    else:
        both = total.parameter("pred"), total.parameter("pred")
        combine = total.build(total.instruction("and", Shape("pred"), both))
        finite = b.instruction("is-finite", Shape("pred", table), (gradient,))
        initial = b.constant(True, "pred")
        found = b.instruction("reduce", Shape("pred"), (finite, initial), (combine,), dimensions=(0, 1))
        reduced = b.convert(found, "f32")
    new = b.subtract(old, b.divide(gradient, b.broadcast(reduced, table, ())))
    root = b.instruction("tuple", TupleShape((new.array_shape, found.array_shape)), (new, found))
    return Module("step", b.build(root), {0: 0})


def arguments(module: Module, seed: int = 0) -> list[np.ndarray]:
    """Ids with repetitions, the first and last row, neighbours, and numbers of no row; some rows are -0."""
    rng = np.random.default_rng(seed)
    table, ids, rows = (p.array_shape.dimensions for p in module.entry.parameters)
    given = rng.integers(-2, table[0] + 2, ids).astype(np.int32)
    given[::4], given[:4], given[5:9] = table[0] // 2, (0, table[0] - 1, 1, 0), given[5] + np.arange(4)
    values = rng.normal(size=rows).astype(np.float32)
    values[::5] = -0.0
    return [rng.normal(size=table).astype(np.float32), given, values]


def is_reduced(program: Program) -> bool:
    return any(isinstance(each.work, ReducedRowsWork) for each in program.compute_sets)


def run(module: Module, given: list[np.ndarray]) -> list[bytes]:
    """The bits of the output and the table after a step."""
    held = buffers(given)
    outputs = compile_module(module, ["variable"] * 3, {}, verify=True).run(1, [], held)
    return [each.tobytes() for each in (*outputs, held[0].read())]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("table", [(3001, 20), (1009, 17), (2048, 32), (40, 1500)])
def test_bits_of_all_rows(table: Dimensions, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = clipped(table, kind=kind)
    assert is_reduced(program_of(module))
    cases = [arguments(module, seed) for seed in range(3)]
    for case, value in zip(cases, (np.inf, np.nan, 1e30), strict=True):
        if value < np.inf or kind == "finite":
            case[2][7, 3] = value
    cases[1][1][:] = -1
    nothing = arguments(module)
    nothing[1][:] = table[0]
    received = [run(module, case) for case in (*cases, nothing)]
    monkeypatch.setattr(row_sums, "reduction_of", lambda *_: None)
    assert not is_reduced(program_of(module))
    assert [run(module, case) for case in (*cases, nothing)] == received
    assert len({each[0] for each in received}) > 1


def test_as_defined_and_accesses_are_declared() -> None:
    module = clipped()
    check(Module(module.name, module.entry, {}), arguments(module))


def test_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    module, found = clipped((4099, 24)), []
    for count in (1, 3):
        monkeypatch.setattr("engine.runtime.executable.worker_count", lambda count=count: count)
        monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
        found.append(run(module, arguments(module)))
    assert found[0] == found[1]


def test_debug_executable_has_the_same_bits() -> None:
    module = clipped(kind="finite")
    held = buffers(arguments(module))
    outputs = DebugExecutable(build_program(module, ["variable"] * 3, {})).run(1, [], held)
    assert [each.tobytes() for each in (*outputs, held[0].read())] == run(module, arguments(module))


def test_sums_of_other_products_stay_dense() -> None:
    module = clipped(weigh=True)
    assert not is_reduced(program_of(module))
    check(Module(module.name, module.entry, {}), arguments(module))
