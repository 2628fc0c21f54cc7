"""Runs a module by XLA: each instruction as the TensorFlow operation that becomes it, in one compiled function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2

from engine.ir import Computation, Instruction, Module, Shape

Value = Any


class NotTranslated(Exception):
    """No operation of TensorFlow becomes this instruction."""


REFUSALS = (NotTranslated, tf.errors.OpError, LookupError, ValueError)


def by_xla(module: Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The flat results. Raises NotTranslated, and TensorFlow's errors for operations that XLA refuses."""
    made = tf.function(lambda *values: _flat(_run(module.entry, values)), jit_compile=True, autograph=False)
    return [r.numpy() for r in made(*map(tf.constant, arguments))]


def _flat(value: Value) -> list[tf.Tensor]:
    return [tf.identity(leaf) for leaf in tf.nest.flatten(value)]


def _run(computation: Computation, arguments: Sequence[Value]) -> Value:
    values: dict[Instruction, Value] = {}
    for i in computation.instructions:
        if i.opcode == "parameter":
            values[i] = arguments[i["parameter_number"]]
        else:
            values[i] = _define(i, [values[o] for o in i.operands])
    return values[computation.root]


def _define(i: Instruction, operands: list[Value]) -> Value:
    translate = TRANSLATED.get(i.opcode)
    if translate is None:
        raise NotTranslated(i.opcode)
    try:
        return translate(i, *operands)
    except (TypeError, KeyError) as error:
        raise NotTranslated(f"{i.opcode} of these types") from error


def _type(shape: Shape) -> tf.DType:
    return tf.as_dtype(shape.dtype)


def _scalar_function(body: Computation) -> Any:
    """The concrete function of a body that computes on scalars."""
    specs = [tf.TensorSpec((), _type(p.array_shape)) for p in body.parameters]

    def call(*values: tf.Tensor) -> Any:
        result = _run(body, values)
        return tuple(map(tf.identity, result)) if isinstance(result, tuple) else tf.identity(result)

    return tf.function(call, autograph=False).get_concrete_function(*specs)


def _of_type(on_numbers: Callable[..., Value], on_preds: Callable[..., Value]) -> Callable[..., Value]:
    return lambda _, *operands: (on_preds if operands[0].dtype == tf.bool else on_numbers)(*operands)


def _plain(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda _, *operands: function(*operands)


def _divide(_: Instruction, x: Value, y: Value) -> Value:
    return tf.raw_ops.TruncateDiv(x=x, y=y) if x.dtype.is_integer else tf.raw_ops.RealDiv(x=x, y=y)


def _remainder(_: Instruction, x: Value, y: Value) -> Value:
    return tf.raw_ops.TruncateMod(x=x, y=y)


COMPARED = {"EQ": tf.equal, "NE": tf.not_equal, "LT": tf.less, "LE": tf.less_equal}
COMPARED |= {"GT": tf.greater, "GE": tf.greater_equal}


def _compare(i: Instruction, x: Value, y: Value) -> Value:
    if i.get("comparison_type") == "TOTALORDER":
        raise NotTranslated("TOTALORDER")
    if x.dtype == tf.bool:
        x, y = (tf.cast(v, tf.int32) for v in (x, y))
    return COMPARED[i["direction"]](x, y)


def _broadcast(i: Instruction, x: Value) -> Value:
    dimensions, shape = i["dimensions"], i.array_shape.dimensions
    order = sorted(range(len(dimensions)), key=lambda k: dimensions[k])
    sizes = [shape[d] if d in dimensions else 1 for d in range(len(shape))]
    return tf.broadcast_to(tf.reshape(tf.transpose(x, order), sizes), shape)


def _slice(i: Instruction, x: Value) -> Value:
    slices = i["slice_dimensions"]
    return xla.slice(x, [s.start for s in slices], [s.limit for s in slices], [s.stride for s in slices])


def _pad(i: Instruction, x: Value, value: Value) -> Value:
    config = i["padding_config"]
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = ([getattr(p, name) for p in config] for name in names)
    return gen_xla_ops.xla_pad(x, value, low, high, interior)


def _iota(i: Instruction) -> Value:
    shape, dimension = i.array_shape.dimensions, i["iota_dimension"]
    sizes = [n if d == dimension else 1 for d, n in enumerate(shape)]
    counts = tf.cast(tf.reshape(tf.range(shape[dimension]), sizes), _type(i.array_shape))
    return tf.broadcast_to(counts, shape)


def _dynamic_slice(i: Instruction, x: Value, *starts: Value) -> Value:
    return xla.dynamic_slice(x, tf.stack(starts), list(i["dynamic_slice_sizes"])) if starts else x


def _dynamic_update_slice(_: Instruction, x: Value, update: Value, *starts: Value) -> Value:
    return xla.dynamic_update_slice(x, update, tf.stack(starts)) if starts else update


def _proto(made: Any, numbers: Any, **renamed: str) -> Any:
    """Dimension numbers as XLA's message, which has fields of the same names."""
    for name in numbers.__dataclass_fields__:
        value, field = getattr(numbers, name), renamed.get(name, name)
        if isinstance(value, int):
            setattr(made, field, value)
        else:
            getattr(made, field).extend(value)
    return made


def _dot(i: Instruction, x: Value, y: Value) -> Value:
    numbers = _proto(xla_data_pb2.DotDimensionNumbers(), i["dot_dimension_numbers"])
    return xla.dot_general(x, y, numbers, preferred_element_type=_type(i.array_shape))


def _convolution(i: Instruction, x: Value, y: Value) -> Value:
    window = i["window"]
    if any(d.window_reversal for d in window):
        raise NotTranslated("window_reversal")
    return xla.conv(
        x,
        y,
        [d.stride for d in window],
        [(d.padding_low, d.padding_high) for d in window],
        [d.base_dilation for d in window],
        [d.window_dilation for d in window],
        _proto(xla_data_pb2.ConvolutionDimensionNumbers(), i["convolution_dimension_numbers"]),
        feature_group_count=i.get("feature_group_count", 1),
        batch_group_count=i.get("batch_group_count", 1),
        preferred_element_type=_type(i.array_shape),
    )


def _reduce(i: Instruction, *operands: Value) -> Value:
    half, body = len(operands) // 2, _scalar_function(i.called[0])
    dimensions = list(i["dimensions"])
    if i.operands[0].array_shape.elements == i.tuple_shapes[0].elements and not (half == 1 and _is_identity(i)):
        raise NotTranslated("a reduce of one element, from which XLA leaves out the initial value")
    if half == 1:
        return gen_xla_ops.xla_reduce(*operands, dimensions_to_reduce=dimensions, reducer=body)
    return tuple(xla.variadic_reduce(operands[:half], operands[half:], dimensions, body))


def _reduce_window(i: Instruction, x: Value, initial: Value) -> Value:
    window = i["window"]
    if any(d.padding_low or d.padding_high or d.base_dilation > 1 for d in window) and not _is_identity(i):
        raise NotTranslated("padding that XLA leaves out and StableHLO fills with the initial value")
    return xla.reduce_window(
        x,
        initial,
        _scalar_function(i.called[0]),
        [d.size for d in window],
        [d.stride for d in window],
        [d.base_dilation for d in window],
        [d.window_dilation for d in window],
        [(d.padding_low, d.padding_high) for d in window],
    )


def _is_identity(i: Instruction) -> bool:
    """Whether the initial value is neutral, so that padding with it does not matter."""
    from engine.ir.opcodes import COMMUTATIVE
    from engine.ops.apply import single_operation
    from engine.passes.rules.reduction import is_neutral

    opcode = single_operation(i.called[0])
    return opcode in COMMUTATIVE and i.operands[1].opcode == "constant" and is_neutral(opcode, i.operands[1])


def _select_and_scatter(i: Instruction, x: Value, source: Value, initial: Value) -> Value:
    window = i["window"]
    if any(d.window_dilation != 1 or d.base_dilation != 1 for d in window):
        raise NotTranslated("dilation")
    select, scatter = map(_scalar_function, i.called)
    return gen_xla_ops.xla_select_and_scatter(
        operand=x,
        window_dimensions=[d.size for d in window],
        window_strides=[d.stride for d in window],
        padding=[(d.padding_low, d.padding_high) for d in window],
        source=source,
        init_value=initial,
        scatter=scatter,
        select=select,
    )


def _sort(i: Instruction, *operands: Value) -> Value:
    (dimension,) = i["dimensions"]
    made = gen_xla_ops.xla_variadic_sort(
        operands, dimension=tf.constant(dimension), comparator=_scalar_function(i.called[0]), is_stable=True
    )
    return made[0] if len(operands) == 1 else tuple(made)


def _gather(i: Instruction, x: Value, indices: Value) -> Value:
    numbers = _proto(xla_data_pb2.GatherDimensionNumbers(), i["gather_dimension_numbers"])
    return xla.gather(x, indices, numbers, list(i["gather_slice_sizes"]))


def _scatter(i: Instruction, *operands: Value) -> Value:
    if len(operands) != 3:
        raise NotTranslated("scatter of many")
    numbers = _proto(xla_data_pb2.ScatterDimensionNumbers(), i["scatter_dimension_numbers"])
    return xla.scatter(*operands, _scalar_function(i.called[0]), numbers)


def _while(i: Instruction, state: Value) -> Value:
    body, condition = i.called
    return tf.while_loop(lambda *s: _run(condition, [s]), lambda *s: _run(body, [s]), state)


def _conditional(i: Instruction, selector: Value, *arguments: Value) -> Value:
    def branch(k: int) -> Callable[[], Value]:
        return lambda: _run(i.called[k], [arguments[k]])

    if selector.dtype == tf.bool:
        return tf.cond(selector, branch(0), branch(1))
    return tf.switch_case(selector, [branch(k) for k in range(len(arguments))])


def _convert(i: Instruction, x: Value) -> Value:
    target = _type(i.array_shape)
    if target.is_integer and not (x.dtype.is_integer or x.dtype == tf.bool):
        raise NotTranslated("floats that no integer may be near")
    return tf.cast(x, target)


UNARY = {
    **{"negate": tf.negative, "abs": tf.abs, "sign": tf.sign, "exponential": tf.exp, "log": tf.math.log},
    **{"exponential-minus-one": tf.math.expm1, "log-plus-one": tf.math.log1p, "logistic": tf.sigmoid},
    **{"sqrt": tf.sqrt, "rsqrt": tf.math.rsqrt, "sine": tf.sin, "cosine": tf.cos, "tanh": tf.tanh},
    **{"erf": tf.math.erf, "ceil": tf.math.ceil, "floor": tf.floor, "round-nearest-even": tf.round},
    **{"is-finite": tf.math.is_finite, "real": tf.math.real, "imag": tf.math.imag},
    **{"copy": tf.identity, "optimization-barrier": tf.identity},
}
BINARY = {
    **{"add": tf.add, "subtract": tf.subtract, "multiply": tf.multiply, "power": tf.pow, "atan2": tf.atan2},
    **{"maximum": tf.maximum, "minimum": tf.minimum, "complex": tf.complex},
    **{"shift-left": xla.shift_left, "shift-right-logical": xla.shift_right_logical},
    **{"shift-right-arithmetic": xla.shift_right_arithmetic},
}
TRANSLATED: dict[str, Callable[..., Value]] = {
    **{name: _plain(function) for name, function in {**UNARY, **BINARY}.items()},
    "not": _of_type(tf.bitwise.invert, tf.logical_not),
    "and": _of_type(tf.bitwise.bitwise_and, tf.logical_and),
    "or": _of_type(tf.bitwise.bitwise_or, tf.logical_or),
    "xor": _of_type(tf.bitwise.bitwise_xor, tf.math.logical_xor),
    "divide": _divide,
    "remainder": _remainder,
    "compare": _compare,
    "select": _plain(tf.where),
    "convert": _convert,
    "constant": lambda i: tf.constant(i["literal"]),
    "tuple": lambda _, *operands: operands,
    "get-tuple-element": lambda i, x: x[i["tuple_index"]],
    "call": lambda i, *operands: _run(i.called[0], operands),
    "reshape": lambda i, x: tf.reshape(x, i.array_shape.dimensions),
    "transpose": lambda i, x: tf.transpose(x, i["dimensions"]),
    "reverse": lambda i, x: tf.reverse(x, list(i["dimensions"])),
    "concatenate": lambda i, *operands: tf.concat(operands, i["dimensions"][0]),
    "broadcast": _broadcast,
    "slice": _slice,
    "pad": _pad,
    "iota": _iota,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "gather": _gather,
    "scatter": _scatter,
    "while": _while,
    "conditional": _conditional,
    "fft": lambda i, x: {"FFT": tf.signal.fft, "IFFT": tf.signal.ifft}[i["fft_type"]](x),
}
"""TensorFlow's operation by opcode: a function of the instruction and its operands' tensors."""
