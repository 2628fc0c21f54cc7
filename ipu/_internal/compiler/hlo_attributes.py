"""Reads the attributes of a serialised instruction, under their names in engine.ir."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from tensorflow.compiler.xla import xla_data_pb2

from engine.errors import UnsupportedOperation
from engine.ir import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    PaddingDimension,
    ScatterDimensionNumbers,
    SliceDimension,
    Window,
    WindowDimension,
)
from engine.ir.opcodes import OPCODES
from engine.ir.shape import NUMPY_TYPES

Proto = Any
Reader = Callable[[Proto], Any]
Attributes = dict[str, Any]

PRIMITIVE_TYPES: dict[int, str] = {number: name.lower() for name, number in xla_data_pb2.PrimitiveType.items()}
PACKED_LITERALS = frozenset({"s8", "u8", "s16", "u16", "f16", "bf16"})
COMPLEX_LITERALS = {"c64": np.float32, "c128": np.float64}


def literal_to_numpy(literal: Proto) -> np.ndarray:
    """The value of an array's LiteralProto, for any layout of its elements."""
    element_type = PRIMITIVE_TYPES[literal.shape.element_type]
    dtype = NUMPY_TYPES[element_type]
    values = getattr(literal, element_type + "s")
    if element_type in PACKED_LITERALS:
        flat = np.frombuffer(values, dtype)
    elif element_type in COMPLEX_LITERALS:
        flat = np.fromiter(values, COMPLEX_LITERALS[element_type], len(values)).view(dtype)
    else:
        flat = np.fromiter(values, dtype, len(values))
    dimensions = tuple(literal.shape.dimensions)
    major_to_minor = list(literal.shape.layout.minor_to_major)[::-1] or list(range(len(dimensions)))
    in_memory = flat.reshape([dimensions[d] for d in major_to_minor])
    return np.ascontiguousarray(in_memory.transpose(np.argsort(major_to_minor))).reshape(dimensions)


def read_attributes(proto: Proto) -> Attributes:
    """The attributes of an HloInstructionProto that its opcode has, by the names in its row of engine.ir.opcodes.

    Raises UnsupportedOperation for a constant tuple.
    """
    row = OPCODES.get(proto.opcode)
    attributes = {name: READERS.get(name, partial(_field, name))(proto) for name in row.attributes} if row else {}
    if proto.frontend_attributes.map:
        # In a fixed order: files of the same program have the same name.
        attributes["frontend_attributes"] = dict(sorted(proto.frontend_attributes.map.items()))
    return attributes


def _window(proto: Proto) -> Window:
    return tuple(
        WindowDimension(
            size=d.size,
            stride=d.stride,
            padding_low=d.padding_low,
            padding_high=d.padding_high,
            window_dilation=d.window_dilation,
            base_dilation=d.base_dilation,
            window_reversal=d.window_reversal,
        )
        for d in proto.window.dimensions
    )


def _record(kind: type, message: Proto) -> Any:
    """An object of the given class from the message that has fields of the same names."""
    values = {name: getattr(message, name) for name in (field.name for field in fields(kind))}
    return kind(**{name: v if isinstance(v, int) else tuple(v) for name, v in values.items()})


def _literal(proto: Proto) -> np.ndarray:
    if PRIMITIVE_TYPES[proto.shape.element_type] == "tuple":
        raise UnsupportedOperation(f"Expected a constant array. Received: a constant tuple, %{proto.name}.")
    return literal_to_numpy(proto.literal)


def _field(name: str, proto: Proto) -> Any:
    """The attribute of a field of the same name, a tuple if the field is repeated."""
    value = getattr(proto, name)
    return value if isinstance(value, bool | int | float | str | bytes) else tuple(value)


def _numbers(name: str, kind: type) -> Reader:
    """Reads a field of that name that is a message of dimension numbers."""
    return lambda proto: _record(kind, getattr(proto, name))


def _name(enumeration: Any, field: str) -> Reader:
    """Reads a field of an enumeration as its name."""
    return lambda proto: enumeration.Name(getattr(proto, field))


def _transpose_a(proto: Proto) -> str:
    options = proto.triangular_solve_options
    return str(type(options).Transpose.Name(options.transpose_a))


def _lower(proto: Proto) -> bool:
    cholesky = proto.opcode == "cholesky"
    return bool((proto.cholesky_options if cholesky else proto.triangular_solve_options).lower)


READERS: dict[str, Reader] = {
    "literal": _literal,
    "iota_dimension": lambda proto: proto.dimensions[0],
    "direction": lambda proto: proto.comparison_direction,
    "slice_dimensions": lambda proto: tuple(_record(SliceDimension, d) for d in proto.slice_dimensions),
    "padding_config": lambda proto: tuple(_record(PaddingDimension, d) for d in proto.padding_config.dimensions),
    "window": _window,
    "dot_dimension_numbers": _numbers("dot_dimension_numbers", DotDimensionNumbers),
    "convolution_dimension_numbers": _numbers("convolution_dimension_numbers", ConvolutionDimensionNumbers),
    "gather_dimension_numbers": _numbers("gather_dimension_numbers", GatherDimensionNumbers),
    "scatter_dimension_numbers": _numbers("scatter_dimension_numbers", ScatterDimensionNumbers),
    "feature_group_count": lambda proto: max(1, proto.feature_group_count),
    "batch_group_count": lambda proto: max(1, proto.batch_group_count),
    "operand_precision": lambda proto: tuple(proto.precision_config.operand_precision),
    "distribution": _name(xla_data_pb2.RandomDistribution, "distribution"),
    "rng_algorithm": _name(xla_data_pb2.RandomAlgorithm, "rng_algorithm"),
    "fft_type": _name(xla_data_pb2.FftType, "fft_type"),
    "lower": _lower,
    "left_side": lambda proto: proto.triangular_solve_options.left_side,
    "unit_diagonal": lambda proto: proto.triangular_solve_options.unit_diagonal,
    "transpose_a": _transpose_a,
}
"""Readers of the attributes that are not simply a field of the same name."""
