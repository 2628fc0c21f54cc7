"""Products of f16 that round their weights: which products do, and that bits are those of narrowed copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.compile import build_program, compile_module
from engine.host.passes import rounded_operands
from engine.host.passes.rounded_operands import round_operands
from engine.ir import DotDimensionNumbers, Module
from engine.ir.builder import Builder
from engine.program.program import Mark
from engine.program.work.contraction import Contraction
from tests.engine.running import arguments_for, buffers

NUMBERS = {"NN": DotDimensionNumbers((1,), (0,)), "NT": DotDimensionNumbers((1,), (1,))}


def layer(rows: int = 32, columns: int = 96, k: int = 128, form: str = "NN", updates: str = "") -> Module:
    """Builds a product by a narrowed float32 variable; `updates`: the variable is updated, or its copy a result."""
    b = Builder()
    shape = (columns, k) if form == "NT" else (k, columns)
    x, w = b.parameter("f16", (rows, k)), b.parameter("f32", shape)
    narrowed = b.convert(w, "f16")
    product = b.dot(x, narrowed, NUMBERS[form])
    if not updates:
        return b.module(product)
    if updates == "variable":
        return b.module(b.tuple(product, b.add(w, b.splat(1.0, shape))), {1: 1})
    return b.module(b.tuple(product, narrowed))


def products(module: Module) -> list[Contraction]:
    """The products of a program after the pass, without other compute sets."""
    program = round_operands(build_program(module, ["variable"] * 2, {}))
    return [each.work for each in program.compute_sets if isinstance(each.work, Contraction)]


@pytest.mark.parametrize(
    ("module", "rounds"),
    [
        (layer(), True),
        (layer(form="NT"), True),
        (layer(updates="variable"), True),
        (layer(updates="result"), False),  # the narrowed array is a result
        (layer(rows=1000), False),
        (layer(columns=8), False),  # a small weight
    ],
)
def test_where_products_round(module: Module, rounds: bool) -> None:
    (product,) = products(module)
    assert product.rounds_b == rounds
    assert (product.b.buffer.shape.element_type == "f32") == rounds


def test_a_variable_that_changes_before_the_product_is_narrowed() -> None:
    program = build_program(layer(updates="variable"), ["variable"] * 2, {})
    (product,) = (at for at, each in enumerate(program.compute_sets) if isinstance(each.work, Contraction))
    sets = program.compute_sets
    moved = [*sets[:product], *sets[product + 1 :], sets[product]]
    assert round_operands(replace(program, compute_sets=moved)).compute_sets == moved
    assert len(round_operands(program).compute_sets) == len(sets) - 1


@pytest.mark.parametrize("kind", ["label", "branch", "jump"])
def test_control_flow_between_the_two_keeps_the_narrowed_array(kind: str) -> None:
    program = build_program(layer(), ["variable"] * 2, {})
    narrowing, product = range(len(program.compute_sets))
    for position, removed in ((narrowing, 1), (product, 0), (product + 1, 1)):
        steered = replace(program, marks=[Mark(position, kind, 0)])
        assert len(round_operands(steered).compute_sets) == 2 - removed


@pytest.mark.parametrize("form", sorted(NUMBERS))
def test_same_bits(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, results = layer(50, 200, 300, form), set()
    held = buffers(arguments_for(module))
    for least in (0, 1 << 30):
        monkeypatch.setattr(rounded_operands, "LEAST_ELEMENTS", least)
        executable = compile_module(module, ["variable"] * 2, {}, verify=True)
        assert any(
            isinstance(each.work, Contraction) and each.work.rounds_b for each in executable._running.compute_sets
        ) == (least == 0)
        for workers in ("1", "2"):
            monkeypatch.setenv("NUMBA_NUM_THREADS", workers)
            results.add(executable.run(1, [], held)[0].tobytes())
    assert len(results) == 1
