"""Constants of loops that are words of the parameter block: the bits of loops with constants in their code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.codelets.language import encoded
from engine.codelets.language.nest_parameters import with_parameters
from engine.ir import Module
from engine.ir.builder import Builder
from engine.program.nest import Constant, Nest, Parameter
from engine.program.work.fused_loop import FusedLoop
from tests.program.machine import machine_of

ATTRIBUTES = {"compare": {"direction": "GE"}}
VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -0.1, 1e-7, 3e38, 1e-42, np.inf, np.nan)


def module_with(opcode: str, value: float, shape: tuple[int, ...], first: bool, reduces: bool) -> Module:
    builder = Builder()
    x, constant = builder.parameter("f32", shape), builder.splat(value, shape)
    found = builder.elementwise(opcode, *((constant, x) if first else (x, constant)), **ATTRIBUTES.get(opcode, {}))
    if reduces and opcode != "compare":
        builder.reduce(found, builder.constant(np.float32(0)), (0,), "add")
    return builder.module()


def nests(module: Module, arrays: list[np.ndarray]) -> list[Nest]:
    works = [each.work for each in machine_of(module, arrays).program.compute_sets]
    return [work.nest for work in works if isinstance(work, FusedLoop)]


@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide", "maximum", "power", "compare"])
def test_same_bits(opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    for value in VALUES:
        for shape in ((0,), (1,), (37,), (5, 3), (40, 16), (130, 10)):
            x = rng.normal(size=shape).astype(np.float32)
            x.reshape(-1)[:4] = np.array([np.nan, np.inf, -0.0, 1e-40], np.float32)[: x.size]
            module = module_with(opcode, value, shape, bool(rng.integers(2)), len(shape) == 2)
            results = [each.tobytes() for each in machine_of(module, [x]).run()]
            with monkeypatch.context() as patch:
                patch.setattr(encoded, "with_parameters", lambda nest: (nest, []))
                assert [each.tobytes() for each in machine_of(module, [x]).run()] == results, (value, shape)


@pytest.mark.parametrize(
    ("opcode", "values"),
    [("add", (3.0, 1e-7)), ("subtract", (3.0, 0.1)), ("multiply", (0.03125, 0.1)), ("divide", (784.0, 3.0))],
)
def test_loops_with_other_constants_share_code(opcode: str, values: tuple[float, float]) -> None:
    x = np.ones(9, np.float32)
    found = [with_parameters(*nests(module_with(opcode, value, (9,), False, False), [x])) for value in values]
    assert found[0][0] == found[1][0] and found[0][1] != found[1][1]
    assert any(isinstance(node, Parameter) for node in found[0][0].nodes)


@pytest.mark.parametrize(
    ("opcode", "value"),
    [("add", 0.0), ("multiply", -1.0), ("maximum", 6.0), ("add", np.inf), ("multiply", np.nan)],
)
def test_constants_with_instructions_of_their_own_stay(opcode: str, value: float) -> None:
    for nest in nests(module_with(opcode, value, (9,), False, False), [np.ones(9, np.float32)]):
        assert with_parameters(nest) == (nest, [])


@pytest.mark.parametrize("kind", ["s32", "s64"])
def test_bounds_of_integers(kind: str) -> None:
    builder = Builder()
    x = builder.parameter(kind, (70,))
    builder.compare(x, builder.splat(-7, (70,), kind), "LT")
    array = np.arange(-40, 30).astype({"s32": np.int32, "s64": np.int64}[kind])
    (nest,) = nests(builder.module(), [array])
    assert with_parameters(nest)[1] == [-7]
    (result,) = machine_of(builder.module(), [array]).run()
    assert np.array_equal(result, array < -7)


def test_stored_constants_stay() -> None:
    (nest,) = nests(module_with("add", 3.0, (9,), False, False), [np.ones(9, np.float32)])
    number = next(k for k, node in enumerate(nest.nodes) if isinstance(node, Constant))
    stored = replace(nest, stores=(replace(nest.stores[0], node=number),))
    assert with_parameters(stored) == (stored, [])
