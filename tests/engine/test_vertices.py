"""Vertices of the user's own: their code in a module gives the results of their Python functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numba
import numpy as np
import pytest

import engine
from engine.codelets.language.vertex import VertexArgument
from engine.codelets.language.vertex_code import _identity, code_of
from engine.compile import build_program
from engine.debug import DebugExecutable
from engine.errors import DebugError, InvalidFile, UnsupportedOperation, VertexError
from engine.evaluate import evaluate
from engine.files.executable_file import ExecutableFile, from_bytes, to_bytes
from engine.files.signature import Signature, tensor_info
from engine.ir import Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import VERTEX
from engine.ir.printer import print_module
from engine.ir.vertices import Split, VertexCall
from engine.loaded import LoadedExecutable
from engine.ops.vertices import FUNCTIONS
from engine.profile.program_estimate import estimate
from engine.target import target
from tests.engine.running import arguments_for, buffers, check


def weighted(x: Any, w: Any, out: Any, first: Any, total: Any) -> None:
    for i in range(x.shape[0]):
        first[i] = abs(x[i, 0])
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * w[j]
            total[j] += x[i, j]


def call(
    function: Callable[..., None], splits: Sequence[Split], shapes: Sequence[Shape], inputs: int, lead: int, grain: int
) -> VertexCall:
    """The call of a function compiled for these arrays."""
    made = VertexCall(function.__name__, tuple(splits), lead, grain, "")
    slices = made.slices(tuple(shapes))
    arguments = (
        VertexArgument(each.shape.element_type, len(each.dimensions), each.split, k >= inputs)
        for k, each in enumerate(slices)
    )
    code = code_of(function, tuple(arguments), False, f"vertex {function.__name__!r}")
    FUNCTIONS[code] = function
    return replace(made, code=code)


def module(made: VertexCall, shapes: Sequence[Shape], inputs: int) -> Module:
    b = Builder()
    operands = [b.parameter_of(shape) for shape in shapes[:inputs]]
    twice = [b.elementwise("add", each, each) for each in operands]
    results = tuple(shapes[inputs:])
    given = results[0] if len(results) == 1 else TupleShape(results)
    config = json.dumps(made.config())
    ran = b.instruction("custom-call", given, twice, custom_call_target=VERTEX, backend_config=config)
    parts = [ran] if len(results) == 1 else [b.get_tuple_element(ran, k) for k in range(len(results))]
    return b.module(b.tuple(*parts))


def weighted_rows(batches: int, rows: int, width: int, grain: int) -> tuple[VertexCall, list[Shape]]:
    units = -(-batches * rows // grain)
    dimensions = [(batches, rows, width), (width,), (batches, rows, width), (batches, rows), (units, width)]
    shapes = [Shape("f32", each) for each in dimensions]
    splits: list[Split] = ["split", "whole", "split", "split", "reduction"]
    return call(weighted, splits, shapes, 2, 2, grain), shapes


@pytest.mark.parametrize("sizes", [(7, 11, 13, 8), (1, 1, 1, 1), (0, 3, 5, 4), (64, 40, 33, 100)])
def test_rows_wholes_and_reductions_are_those_of_the_function(sizes: tuple[int, int, int, int]) -> None:
    made, shapes = weighted_rows(*sizes)
    check(module(made, shapes, 2))


def negated(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = not x[i] if i % 2 else x[i]


@pytest.mark.parametrize("kind", ["pred", "s8", "s32"])
def test_elementwise_vertices_take_integers_and_booleans(kind: str) -> None:
    shapes = [Shape(kind, (5, 7))] * 2
    check(module(call(negated, ["split"] * 2, shapes, 1, 2, 8), shapes, 1))


def test_definition_needs_the_function_of_this_process() -> None:
    made, shapes = weighted_rows(2, 3, 4, 3)
    changed = module(replace(made, code=made.code + "other"), shapes, 2)
    with pytest.raises(UnsupportedOperation, match="'weighted', of another one"):
        evaluate(changed, arguments_for(changed))


def test_declared_cycles_are_in_the_cost_report() -> None:
    made, shapes = weighted_rows(64, 40, 33, 100)
    assumed, *costs = (
        estimate(build_program(module(replace(made, cycles=cycles), shapes, 2), ["variable"] * 2, {}), target("ipu2"))
        for cycles in (None, (50, 50 * 100), (500, 500 * 100))
    )
    assert assumed.assumed == ("vertex weighted",) and costs[0].assumed == ()
    cheap, dear = (next(c.compute for c in each.costs if "weighted" in c.name) for each in costs)
    assert 7 < dear / cheap < 10


def beyond(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = x[i] + x[i + 1]


def into_the_next(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i + 1] = x[i]


def forgetful(x: Any, out: Any) -> None:
    out[0] = x[0]


@pytest.mark.parametrize(
    ("function", "found"), [(beyond, "a read of"), (into_the_next, "write"), (forgetful, "becomes nan")]
)
def test_debug_executor_names_a_vertex_that_touches_other_slices(function: Callable[..., None], found: str) -> None:
    shapes = [Shape("f32", (100, 300))] * 2
    program = build_program(module(call(function, ["split"] * 2, shapes, 1, 2, 1000), shapes, 1), ["variable"], {})
    with pytest.raises(
        DebugError, match=rf"\.{function.__name__}'.*{found}.*the vertex, or its split|not been written"
    ):
        DebugExecutable(program).run(1, [], buffers([np.ones((100, 300), np.float32)]))


def raising(x: Any, out: Any) -> None:
    if x[0] > 3:
        raise ValueError("too much")
    out[0] = x[0]


def allocating(x: Any, out: Any) -> None:
    out[0] = np.zeros(3)[0]


def returning(x: Any, out: Any) -> int:
    return 3


def writing_an_input(x: Any, out: Any) -> None:
    x[0] = out[0]


def unknown(x: Any, out: Any) -> None:
    out[0] = missing_name(x[0])  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize("function", [raising, allocating, returning, writing_an_input, unknown])
def test_functions_that_cannot_be_vertices_are_refused_by_name(function: Callable[..., None]) -> None:
    with pytest.raises(VertexError, match=f"vertex '{function.__name__}'"):
        call(function, ["split"] * 2, [Shape("f32", (4,))] * 2, 1, 1, 4)


def test_files_have_the_code_which_runs_where_it_is_trusted() -> None:
    made, shapes = weighted_rows(3, 7, 5, 4)
    program = module(made, shapes, 2)
    arguments = arguments_for(program)
    expected = evaluate(program, arguments)
    inputs, outputs = (
        tuple(tensor_info(f"{kind}{k}", each) for k, each in enumerate(found))
        for kind, found in (("in", shapes[:2]), ("out", shapes[2:]))
    )
    content = to_bytes(ExecutableFile(program, ["feed"] * 2, {}, Signature(inputs, outputs)))
    with pytest.raises(InvalidFile, match=r"of vertex 'weighted'.*engine\.trusting_vertices\(\)"):
        from_bytes(content, "a file")
    FUNCTIONS.clear()
    with engine.trusting_vertices():
        loaded = LoadedExecutable(from_bytes(content, "a file"))
    for one, other in zip(loaded.run(arguments), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_printed_modules_show_the_declaration_without_the_code() -> None:
    made, shapes = weighted_rows(3, 7, 5, 4)
    (line,) = (each for each in print_module(module(made, shapes, 2)).splitlines() if VERTEX in each)
    assert '"grain": 4' in line and '..."' not in line and len(line) < 600


@numba.njit
def tripled(value: float) -> float:
    return 3 * value


def shifted(value: float) -> float:
    return tripled(value) + SHIFT


SHIFT = np.float32(0.25)
TABLE = np.array([1, 10, 100], np.float32)


class Entry(IntEnum):
    COUNT = 3


def with_factor(factor: float) -> Callable[..., None]:
    def scaled(x: Any, out: Any) -> None:
        for i, value in enumerate(x):
            out[i] = shifted(value) * factor + math.exp(TABLE[i % Entry.COUNT] / 1000)

    return scaled


def test_vertices_use_helpers_constants_and_tables() -> None:
    shapes = [Shape("f32", (100,))] * 2
    calls = [call(with_factor(factor), ["split"] * 2, shapes, 1, 1, 30) for factor in (2.0, 5.0)]
    assert calls[0].code != calls[1].code
    for made in calls:
        check(module(made, shapes, 1))


def test_code_is_kept_by_all_that_it_depends_on() -> None:
    """Functions of the same name that differ in a constant, a helper or a table have separate code on disk."""

    def defined(text: str, **values: Any) -> Any:
        scope: dict[str, Any] = {"np": np, **values}
        exec(text, scope)
        return _identity(scope["f"], set())

    text = "def f(x, out):\n    out[0] = g(x[0]) * np.sqrt(k)\n"
    base = {"g": shifted, "k": np.float32(2)}
    first = defined(text, **base)
    assert first is not None and first == defined(text, **base)
    changes: list[Any] = [{"g": math.sin}, {"k": np.float32(3)}, {"k": 2.0}, {"k": TABLE}]
    different = [first, defined(text.replace("x[0]", "x[1]"), **base), *(defined(text, **base | c) for c in changes)]
    assert len({repr(each) for each in different}) == len(different)
    assert defined(text, **base | {"g": lambda x: engine.load(x)}) is None
