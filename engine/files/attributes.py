"""The attributes of instructions as JSON values: each name has one kind, and values of other kinds are rejected."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.errors import InternalError, InvalidFile
from engine.ir.attributes import (
    HOLDS_ANYTHING,
    ROWS_OF_AN_ITERATION,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    PaddingDimension,
    ScatterDimensionNumbers,
    SliceDimension,
    WindowDimension,
)

Plain = TypeVar("Plain")

LARGEST = 1 << 40
"""Upper limit of sizes, strides and paddings in a program."""
SIGNED_FIELDS = frozenset({"padding_low", "padding_high", "edge_padding_low", "edge_padding_high"})
AT_LEAST_ONE = frozenset({"size", "stride", "window_dilation", "base_dilation"})


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A writer of values of one kind, and a reader with all checks, which raises InvalidFile."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def integer(value: Any, least: int = 0) -> int:
    """An integer least <= value <= LARGEST; raises InvalidFile for anything else."""
    if type(value) is not int or not least <= value <= LARGEST:
        raise InvalidFile(f"Expected an integer from {least} to {LARGEST}. Received: {value!r:.80}.")
    return value


def integers(value: Any, least: int = 0) -> tuple[int, ...]:
    """A tuple of integers, least <= value <= LARGEST, from a list; raises InvalidFile for anything else."""
    return tuple(integer(each, least) for each in a_list(value))


def of_type(kind: type[Plain], what: str) -> Callable[[Any], Plain]:
    """A reader of values of exactly this type, which raises InvalidFile for any other."""

    def read(value: Any) -> Plain:
        if type(value) is not kind:
            raise InvalidFile(f"Expected {what}. Received: {value!r:.80}.")
        return value

    return read


a_list: Callable[[Any], list[Any]] = of_type(list, "a list")
text = of_type(str, "a string")
boolean = of_type(bool, "true or false")
an_object: Callable[[Any], dict[str, Any]] = of_type(dict, "an object")


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise InvalidFile(f"Expected a finite number. Received: {value!r:.80}.")
    return float(value)


def _choice(*words: str) -> ValueKind:
    def read(value: Any) -> str:
        if value not in words:
            raise InvalidFile(f"Expected one of {', '.join(words)}. Received: {value!r:.80}.")
        return text(value)

    return ValueKind(str, read)


def _record(kind: type) -> ValueKind:
    """A dataclass of integers, booleans and tuples of integers, as the list of its fields."""
    fields = dataclasses.fields(kind)

    def write(value: Any) -> list[Any]:
        values = [getattr(value, each.name) for each in fields]
        return [list(each) if isinstance(each, tuple) else each for each in values]

    def read(value: Any) -> Any:
        if len(a_list(value)) != len(fields):
            raise InvalidFile(f"Expected the {len(fields)} fields of {kind.__name__}. Received: {value!r:.80}.")
        return kind(*(_field(each.name, str(each.type), part) for each, part in zip(fields, value, strict=True)))

    return ValueKind(write, read)


def _field(name: str, kind: str, value: Any) -> Any:
    if kind == "bool":
        return boolean(value)
    if kind.startswith("tuple"):
        return integers(value)
    return integer(value, -LARGEST if name in SIGNED_FIELDS else int(name in AT_LEAST_ONE))


def _several(kind: ValueKind) -> ValueKind:
    return ValueKind(
        lambda value: [kind.write(e) for e in value], lambda value: tuple(kind.read(e) for e in a_list(value))
    )


def texts(value: Any) -> dict[str, str]:
    """Strings by name; raises InvalidFile for anything else."""
    return {text(key): text(each) for key, each in an_object(value).items()}


NATURAL = ValueKind(int, integer)
POSITIVE = ValueKind(int, lambda value: integer(value, 1))
NATURALS = ValueKind(lambda value: [int(each) for each in value], integers)
BOOLEAN = ValueKind(bool, boolean)
TEXT = ValueKind(lambda value: value.decode() if isinstance(value, bytes) else text(value), text)
KINDS: dict[str, ValueKind] = {
    **dict.fromkeys(("parameter_number", "iota_dimension", "tuple_index", "feature_index", "channel_id"), NATURAL),
    **dict.fromkeys(("exponent_bits", "mantissa_bits", "results", "limit"), NATURAL),
    **dict.fromkeys(("feature_group_count", "batch_group_count"), POSITIVE),
    **dict.fromkeys(("dimensions", "fft_length", "gather_slice_sizes", "dynamic_slice_sizes"), NATURALS),
    **dict.fromkeys(("operand_precision", "loops"), NATURALS),
    **dict.fromkeys(("indices_are_sorted", "unique_indices", "is_stable", "custom_call_has_side_effect"), BOOLEAN),
    **dict.fromkeys(("left_side", "lower", "unit_diagonal", HOLDS_ANYTHING), BOOLEAN),
    **dict.fromkeys(("keeps_its_work", "stays_a_branch"), BOOLEAN),
    ROWS_OF_AN_ITERATION: POSITIVE,
    **dict.fromkeys(("custom_call_target", "backend_config", "comparison_type", "stands_for"), TEXT),
    "direction": _choice("EQ", "NE", "GE", "GT", "LE", "LT"),
    "distribution": _choice("RNG_UNIFORM", "RNG_NORMAL"),
    "rng_algorithm": _choice("RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"),
    "fft_type": _choice("FFT", "IFFT", "RFFT", "IRFFT"),
    "transpose_a": _choice("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "overflow": _choice("infinity", "nan", "clip"),
    "delta": NATURAL,
    "result_accuracy": NATURAL,
    "epsilon": ValueKind(float, _number),
    "frontend_attributes": ValueKind(dict, texts),
    "replica_groups": _several(NATURALS),
    "window": _several(_record(WindowDimension)),
    "slice_dimensions": _several(_record(SliceDimension)),
    "padding_config": _several(_record(PaddingDimension)),
    "dot_dimension_numbers": _record(DotDimensionNumbers),
    "convolution_dimension_numbers": _record(ConvolutionDimensionNumbers),
    "gather_dimension_numbers": _record(GatherDimensionNumbers),
    "scatter_dimension_numbers": _record(ScatterDimensionNumbers),
}
"""The kind of each attribute but `literal`, which is an array."""


def write_attribute(name: str, value: Any) -> Any:
    """The JSON value; raises InternalError for a name that files do not have."""
    if name not in KINDS:
        raise InternalError(f"Expected an attribute that files have. Received: {name}={value!r}.")
    return KINDS[name].write(value)


def read_attribute(name: str, value: Any) -> Any:
    """The attribute of a JSON value; raises InvalidFile for an unknown name or a value of another kind."""
    if name not in KINDS:
        raise InvalidFile(f"Expected an attribute of HLO. Received: {name!r:.80}.")
    return KINDS[name].read(value)
