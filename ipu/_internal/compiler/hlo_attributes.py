"""Reads the attributes of a serialised instruction, under the names engine.ir gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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
from engine.ir.shape import NUMPY_TYPES

Proto = Any
Attributes = dict[str, Any]

PRIMITIVE_TYPES: dict[int, str] = {number: name.lower() for name, number in xla_data_pb2.PrimitiveType.items()}
PACKED_LITERALS = frozenset({"s8", "u8", "s16", "u16", "f16", "bf16"})
COMPLEX_LITERALS = {"c64": np.float32, "c128": np.float64}


def literal_to_numpy(literal: Proto) -> np.ndarray:
    """The value of an array's LiteralProto, whatever the layout its elements are listed in."""
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
    """The attributes of an HloInstructionProto; raises UnsupportedOperation for a constant tuple."""
    reader = READERS.get(proto.opcode)
    attributes = reader(proto) if reader else {}
    if proto.frontend_attributes.map:
        attributes["frontend_attributes"] = dict(proto.frontend_attributes.map)
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


def _numbers(kind: type, message: Proto) -> Any:
    """Dimension numbers of the given class from the message that has fields of the same names."""
    values = {name: getattr(message, name) for name in (field.name for field in fields(kind))}
    return kind(**{name: v if isinstance(v, int) else tuple(v) for name, v in values.items()})


def _dimensions(proto: Proto) -> Attributes:
    return {"dimensions": tuple(proto.dimensions)}


def _constant(proto: Proto) -> Attributes:
    if PRIMITIVE_TYPES[proto.shape.element_type] == "tuple":
        raise UnsupportedOperation(f"Expected a constant array. Received: a constant tuple, %{proto.name}.")
    return {"literal": literal_to_numpy(proto.literal)}


def _slice(proto: Proto) -> Attributes:
    return {"slice_dimensions": tuple(_numbers(SliceDimension, d) for d in proto.slice_dimensions)}


def _pad(proto: Proto) -> Attributes:
    return {"padding_config": tuple(_numbers(PaddingDimension, d) for d in proto.padding_config.dimensions)}


def _windowed(proto: Proto) -> Attributes:
    return {"window": _window(proto)}


def _precision(proto: Proto) -> Attributes:
    return {"operand_precision": tuple(proto.precision_config.operand_precision)}


def _dot(proto: Proto) -> Attributes:
    numbers = _numbers(DotDimensionNumbers, proto.dot_dimension_numbers)
    return {"dot_dimension_numbers": numbers, **_precision(proto)}


def _convolution(proto: Proto) -> Attributes:
    numbers = _numbers(ConvolutionDimensionNumbers, proto.convolution_dimension_numbers)
    return {
        "window": _window(proto),
        "convolution_dimension_numbers": numbers,
        "feature_group_count": max(1, proto.feature_group_count),
        "batch_group_count": max(1, proto.batch_group_count),
        **_precision(proto),
    }


def _gather(proto: Proto) -> Attributes:
    return {
        "gather_dimension_numbers": _numbers(GatherDimensionNumbers, proto.gather_dimension_numbers),
        "gather_slice_sizes": tuple(proto.gather_slice_sizes),
        "indices_are_sorted": proto.indices_are_sorted,
    }


def _scatter(proto: Proto) -> Attributes:
    return {
        "scatter_dimension_numbers": _numbers(ScatterDimensionNumbers, proto.scatter_dimension_numbers),
        "indices_are_sorted": proto.indices_are_sorted,
        "unique_indices": proto.unique_indices,
    }


def _compare(proto: Proto) -> Attributes:
    return {"direction": proto.comparison_direction, "comparison_type": proto.comparison_type}


def _sort(proto: Proto) -> Attributes:
    return {"dimensions": tuple(proto.dimensions), "is_stable": proto.is_stable}


def _fft(proto: Proto) -> Attributes:
    return {"fft_type": xla_data_pb2.FftType.Name(proto.fft_type), "fft_length": tuple(proto.fft_length)}


def _custom_call(proto: Proto) -> Attributes:
    return {
        "custom_call_target": proto.custom_call_target,
        "backend_config": proto.backend_config,
        "custom_call_has_side_effect": proto.custom_call_has_side_effect,
    }


def _triangular_solve(proto: Proto) -> Attributes:
    options = proto.triangular_solve_options
    transpose = type(options).Transpose.Name(options.transpose_a)
    return {
        "left_side": options.left_side,
        "lower": options.lower,
        "unit_diagonal": options.unit_diagonal,
        "transpose_a": transpose,
    }


def _batch_norm(proto: Proto) -> Attributes:
    return {"epsilon": proto.epsilon, "feature_index": proto.feature_index}


def _all_reduce(proto: Proto) -> Attributes:
    groups = tuple(tuple(group.replica_ids) for group in proto.replica_groups)
    return {"replica_groups": groups, "channel_id": proto.channel_id}


READERS: dict[str, Callable[[Proto], Attributes]] = {
    "parameter": lambda proto: {"parameter_number": proto.parameter_number},
    "constant": _constant,
    "iota": lambda proto: {"iota_dimension": proto.dimensions[0]},
    "get-tuple-element": lambda proto: {"tuple_index": proto.tuple_index},
    **dict.fromkeys(
        ("broadcast", "transpose", "concatenate", "reverse", "reduce", "map"),
        _dimensions,
    ),
    **dict.fromkeys(("get-dimension-size", "set-dimension-size"), _dimensions),
    "sort": _sort,
    "slice": _slice,
    "dynamic-slice": lambda proto: {"dynamic_slice_sizes": tuple(proto.dynamic_slice_sizes)},
    "pad": _pad,
    "compare": _compare,
    "reduce-window": _windowed,
    "select-and-scatter": _windowed,
    "dot": _dot,
    "convolution": _convolution,
    "gather": _gather,
    "scatter": _scatter,
    "rng": lambda proto: {"distribution": xla_data_pb2.RandomDistribution.Name(proto.distribution)},
    "rng-bit-generator": lambda proto: {"rng_algorithm": xla_data_pb2.RandomAlgorithm.Name(proto.rng_algorithm)},
    "reduce-precision": lambda proto: {
        "exponent_bits": proto.exponent_bits,
        "mantissa_bits": proto.mantissa_bits,
    },
    "fft": _fft,
    "cholesky": lambda proto: {"lower": proto.cholesky_options.lower},
    "triangular-solve": _triangular_solve,
    **dict.fromkeys(("batch-norm-training", "batch-norm-inference", "batch-norm-grad"), _batch_norm),
    "all-reduce": _all_reduce,
    "custom-call": _custom_call,
}
