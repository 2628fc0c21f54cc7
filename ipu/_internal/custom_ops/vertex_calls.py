"""Calls of a user's vertex: its slices for the shapes of a call, its code, and where it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from engine.ir.device_operations import VERTEX
from engine.ir.shape import ELEMENT_TYPES, Shape, TupleShape, shape_of
from engine.ir.vertices import Split, VertexCall
from engine.runtime.buffers import DeviceBuffer
from ipu._internal.compiler.device_calls import device_call
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.custom_ops.declaration import Declaration

if TYPE_CHECKING:
    from engine.runtime.executable import Executable

UNIT = 8192
"""Elements of a slice: enough to be worth a call, few enough for a cache."""
MOST_PARTIALS = 64
"""Slices of a vertex with reductions, as each has partial sums."""
DIVIDED = ("elementwise", "rows")
HALF = (tf.float16, tf.bfloat16)
_host_lock = threading.Lock()


class SliceShape(NamedTuple):
    """The shape and dtype of a slice, for estimates of cycles."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Compiled:
    """A vertex for inputs of certain shapes: its call, the arrays of the call, and the outputs as declared."""

    call: VertexCall
    arrays: tuple[Shape, ...]
    declared: tuple[tf.TensorSpec, ...]

    @property
    def results(self) -> tuple[Shape, ...]:
        """The results of the call: the outputs, with a term of each sum for each slice."""
        return self.arrays[-len(self.declared) :]


def call_vertex(vertex: Declaration, kept: dict[Any, Compiled], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The outputs of a vertex, on the device in a function traced for it, else on the host.

    `kept` are its calls by the shapes and dtypes of their inputs.
    """
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in inputs]
    if in_symbolic_graph():
        # Keras infers shapes; the graph is never executed.
        return [tf.compat.v1.placeholder(each.dtype, each.shape) for each in _declared(vertex, specs)]
    if not all(spec.shape.is_fully_defined() for spec in specs):
        raise vertex.error(f"inputs of static shape. Received: {', '.join(str(spec.shape) for spec in specs)}")
    key = tuple((tuple(spec.shape.as_list()), spec.dtype) for spec in specs)
    if key not in kept:
        kept[key] = _compile(vertex, specs)
    compiled = kept[key]
    wide = [tf.cast(each, tf.float32) if each.dtype in HALF else each for each in inputs]
    specs = [tf.TensorSpec(shape.dimensions, shape.dtype) for shape in compiled.results]
    run = device_call(VERTEX, wide, compiled.call.config(), specs) if tracing() else _on_host(compiled, wide, specs)
    splits = vertex.splits[len(inputs) :]
    found = [tf.reduce_sum(each, 0) if split == "reduction" else each for each, split in zip(run, splits, strict=True)]
    return [tf.cast(each, spec.dtype) for each, spec in zip(found, compiled.declared, strict=True)]


def _compile(vertex: Declaration, specs: Sequence[tf.TensorSpec]) -> Compiled:
    """Checks the arrays of a call, and compiles the function for their types. Raises VertexError."""
    from engine.codelets.language.vertex import VertexArgument  # loads LLVM
    from engine.codelets.language.vertex_code import code_of
    from engine.ops.vertices import FUNCTIONS

    declared = _declared(vertex, specs)
    shapes = [_shape(vertex, *pair) for pair in zip(vertex.names, (*specs, *declared), strict=True)]
    splits = tuple(cast(Split, "split" if each in DIVIDED else each) for each in vertex.splits)
    lead = _lead(vertex, shapes)
    call = VertexCall(vertex.name, splits, lead, 1, "")
    rows = call.rows(tuple(shapes))
    call = replace(
        call, grain=_grain(rows, sum(s.elements for s, k in zip(shapes, splits, strict=True) if k == "split"), splits)
    )
    units = -(-rows // call.grain)
    arrays = tuple(
        shape.with_dimensions((units, *shape.dimensions)) if split == "reduction" else shape
        for shape, split in zip(shapes, splits, strict=True)
    )
    slices = call.slices(arrays)
    arguments = tuple(
        VertexArgument(each.shape.element_type, len(each.dimensions), each.split, number >= len(specs))
        for number, each in enumerate(slices)
    )
    code = code_of(vertex.function, arguments, vertex.reassociate, vertex.title)
    FUNCTIONS[code] = vertex.function
    if vertex.cycles is not None:
        inputs = slices[: len(specs)]
        one, many = (
            int(vertex.cycles(*(SliceShape(each.of_rows(count), each.shape.dtype) for each in inputs)))
            for count in (1, call.grain)
        )
        call = replace(call, cycles=(one, many))
    return Compiled(replace(call, code=code), arrays, tuple(declared))


def _declared(vertex: Declaration, specs: Sequence[tf.TensorSpec]) -> list[tf.TensorSpec]:
    """The outputs that a vertex declares. Raises VertexError for another number of them."""
    given = vertex.outputs_of(*specs)
    listed = list(given) if isinstance(given, list | tuple) else [given]
    if len(listed) != len(vertex.outputs):
        raise vertex.error(
            f"outputs ({', '.join(vertex.outputs)}), as it has parameters. Received: {len(listed)} of `outputs`"
        )
    return [tf.TensorSpec(each.shape, each.dtype) for each in listed]


def _shape(vertex: Declaration, name: str, spec: tf.TensorSpec) -> Shape:
    """The shape of an array as the device has it. Raises VertexError for a dtype that vertices do not take."""
    from engine.codelets.language.vertex import NUMBA_TYPES

    dtype = tf.float32 if spec.dtype in HALF else spec.dtype
    kind = ELEMENT_TYPES.get(np.dtype(dtype.as_numpy_dtype)) if dtype.is_numpy_compatible else None
    if kind not in NUMBA_TYPES:
        raise vertex.error(f"numbers or booleans in {name!r}. Received: dtype {spec.dtype.name}")
    if not spec.shape.is_fully_defined():
        raise vertex.error(f"a static shape of {name!r}. Received: {spec.shape}")
    return Shape(str(kind), tuple(spec.shape.as_list()))


def _lead(vertex: Declaration, shapes: Sequence[Shape]) -> int:
    """The number of dimensions that are joined to rows. Raises VertexError for arrays that do not agree in them."""
    named = [each for each in zip(vertex.names, shapes, vertex.splits, strict=True) if each[2] in DIVIDED]
    first, shape, split = named[0]
    if split == "rows" and not shape.rank:
        raise vertex.error(f"at least one dimension in {first!r}, whose rows are divided. Received: a scalar")
    lead = shape.rank if split == "elementwise" else max(1, shape.rank - 1)
    for name, other, _ in named:
        seen = other.dimensions if split == "elementwise" else other.dimensions[:lead]
        if seen != shape.dimensions[:lead]:
            what = "the shape" if split == "elementwise" else "the rows"
            raise vertex.error(
                f"{what} {list(shape.dimensions[:lead])} of {first!r} in {name!r}, which is split like it. Received: "
                f"{list(other.dimensions)}. Split it 'whole' if each slice needs all of it"
            )
    return lead


def _grain(rows: int, elements: int, splits: Sequence[Split]) -> int:
    """The rows of a slice, given the elements of all arrays that are split."""
    grain = max(1, UNIT * rows // max(1, elements))
    if "reduction" in splits:
        grain = max(grain, -(-rows // MOST_PARTIALS))
    return max(1, min(grain, rows))


def _on_host(compiled: Compiled, tensors: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """The results of a call outside of functions for the device."""

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        variables = [DeviceBuffer(shape_of(array)) for array in arrays]
        for variable, array in zip(variables, arrays, strict=True):
            variable.write(array)
        with _host_lock:
            return _executable(compiled.call, compiled.arrays, len(arrays)).run(1, [], variables)

    results = tf.nest.flatten(tf.numpy_function(run, tensors, [spec.dtype for spec in specs]))
    # As operations: shapes that are set alone are lost where a graph is imported again, as for an export.
    return [tf.ensure_shape(each, spec.shape) for each, spec in zip(results, specs, strict=True)]


@lru_cache(64)
def _executable(call: VertexCall, arrays: tuple[Shape, ...], inputs: int) -> Executable:
    """A program of the call alone."""
    from engine.compile import compile_module
    from engine.ir.builder import Builder

    b = Builder(call.name)
    operands, results = [b.parameter_of(shape) for shape in arrays[:inputs]], arrays[inputs:]
    shape: Any = results[0] if len(results) == 1 else TupleShape(results)
    made = b.instruction(
        *("custom-call", shape, operands), custom_call_target=VERTEX, backend_config=json.dumps(call.config())
    )
    root = made if len(results) == 1 else b.tuple(*(b.get_tuple_element(made, k) for k in range(len(results))))
    return compile_module(b.module(root), ["variable"] * inputs, {})
