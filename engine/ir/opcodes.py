"""The table of opcodes: properties of operations, independent of their shapes.

Each opcode is one row. Passes, lowering and cost estimates query the table, mostly through the sets below it, and have
no lists of opcodes themselves. Its definition (engine.ops), emitter (engine.emit) and lowering (engine.lower) are
registered under the opcode in those packages, whose import fails where a row lacks one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from engine.errors import InternalError
from engine.ir import shape_rules as shapes
from engine.ir import structured_shape_rules as structured
from engine.ir.module import Instruction
from engine.ir.shape import COMPLEX, FLOATS, INTEGERS, NUMBERS, NUMPY_TYPES, ORDERED, PRED, AnyShape
from engine.ir.shape_rules import ShapeRule

Kind = Literal[
    "source",
    "tuple",
    "elementwise",
    "data movement",
    "contraction",
    "reduction",
    "linear algebra",
    "transform",
    "sort",
    "random",
    "normalization",
    "control flow",
    "application",
    "host",
    "token",
    "dynamic size",
]
Execution = Literal["emitter", "lowering", "pass", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opcode:
    """Properties of one opcode.

    `shape` gives the only legal shape of the result; None where any is legal (the instruction's own is trusted).
    `operand_types` are the element types of its operands, or of a source's result; None for all types.
    `attributes` are those that HLO serialises, `called` HLO's names of the computations it calls.
    `execution` is by an emitter in fused loops, a lowering, a pass that rewrites it into other operations,
    or none: a module that has it is rejected.
    """

    name: str
    kind: Kind
    execution: Execution
    shape: ShapeRule | None
    operand_types: frozenset[str] | None = None
    attributes: tuple[str, ...] = ()
    called: tuple[str, ...] = ("to_apply",)
    commutative: bool = False
    """Whether f(x, y) equals f(y, x) as values."""
    either_zero: bool = False
    """Whether the result may be either of +0 and -0, which are equal: commuting operands may change a float's bits."""
    neutral: Literal["", "zero", "one", "lowest", "highest", "all ones", "nan"] = ""
    """The neutral element of an associative operation: see `neutral_element`."""
    affine: bool = False
    """Each element is an element of the operand, whose index is an affine function of the result's."""
    stored: bool = True
    """The result has memory of its own; if not, its users read the operands' memory."""
    exact: bool = False
    """The result of float operands is exactly representable in their type: never rounded."""
    raises: bool = True
    """An element may raise a floating-point exception."""
    pole: tuple[int, float] | None = None
    """The number of an operand and the value of it at which the operation divides by zero."""
    propagates: tuple[int, ...] = ()
    """Numbers of the operands whose non-finite values always make the result non-finite."""
    spreads_nan: bool = False
    """The result is NaN where any operand is."""
    bounded: bool = False
    """The result of any real operand is at most 2 in magnitude, or NaN."""
    cost: int = 1
    """Time per element on the host, as a multiple of an addition's."""
    code: int = 0
    """Machine code of an element, as a multiple of an addition's; 0 stands for `cost`."""
    cycles: str = ""
    """The opcode whose cycles on the chip (cycles.toml) apply, if it is another one."""
    effect: Literal["", "host", "state"] = ""
    """The side effect: an exchange of data with the host, or a change of the random number generator's state."""
    internal: bool = False
    """Whether only passes create the operation: no framework traces it, and no file contains it."""

    @property
    def length(self) -> int:
        """Machine code of an element, as a multiple of an addition's."""
        return self.code or self.cost

    @property
    def associative(self) -> bool:
        """Whether a reduction by the operation may be split into partial reductions."""
        return bool(self.neutral)


def _elementwise(name: str, shape: ShapeRule, types: frozenset[str] | None = None, **properties: Any) -> Opcode:
    return Opcode(
        name=name, kind="elementwise", execution="emitter", shape=shape, operand_types=types, called=(), **properties
    )


def _unary(name: str, types: frozenset[str], **properties: Any) -> Opcode:
    return _elementwise(name, shapes.same_as_operand, types, **properties)


def _binary(name: str, types: frozenset[str] | None, **properties: Any) -> Opcode:
    return _elementwise(name, shapes.same_as_both, types, **properties)


def _lowered(name: str, kind: Kind, shape: ShapeRule | None, *attributes: str, **properties: Any) -> Opcode:
    return Opcode(name=name, kind=kind, execution="lowering", shape=shape, attributes=attributes, **properties)


def _other(name: str, kind: Kind, execution: Execution, shape: ShapeRule | None, **properties: Any) -> Opcode:
    return Opcode(name=name, kind=kind, execution=execution, shape=shape, **properties)


_EXACT = {"exact": True, "raises": False}
_PRECISION = {"attributes": ("exponent_bits", "mantissa_bits")}
_EXTREMUM = {"commutative": True, "either_zero": True, **_EXACT}
_RING = {"commutative": True, "propagates": (0, 1)}
_ANALYTIC = FLOATS | COMPLEX

_ROWS = (
    # Elementwise, of one operand
    _elementwise("abs", shapes.real_part, NUMBERS, cycles="negate", **_EXACT),
    _unary("cbrt", _ANALYTIC, code=24),
    _unary("ceil", FLOATS, cycles="select", **_EXACT),
    _elementwise("convert", shapes.convert),
    _elementwise("copy", shapes.same_as_any_operand, None, affine=True, **_EXACT),
    _unary("cosine", _ANALYTIC, bounded=True, code=24, cycles="sine"),
    _unary("count-leading-zeros", INTEGERS, cycles="and"),
    _unary("erf", FLOATS, bounded=True, cost=12),
    _unary("erfc", FLOATS, bounded=True, cost=12, cycles="erf"),
    _unary("exponential", _ANALYTIC, cost=8),
    _unary("exponential-minus-one", _ANALYTIC, code=24),
    _unary("floor", FLOATS, cycles="select", **_EXACT),
    _elementwise("imag", shapes.real_part, _ANALYTIC, cycles="complex", **_EXACT),
    _elementwise("is-finite", shapes.is_finite, FLOATS, cycles="select"),
    _unary("log", _ANALYTIC, cost=12, code=24, pole=(0, 0.0)),
    _unary("log-plus-one", _ANALYTIC, code=24, pole=(0, -1.0)),
    _unary("logistic", _ANALYTIC, bounded=True, cost=12),
    _unary("negate", NUMBERS, propagates=(0,), spreads_nan=True, **_EXACT),
    _unary("not", INTEGERS | PRED, cycles="and"),
    _unary("popcnt", INTEGERS, cycles="and"),
    _elementwise("real", shapes.real_part, _ANALYTIC, cycles="complex", **_EXACT),
    _elementwise("reduce-precision", shapes.reduce_precision, FLOATS, cycles="select", **_PRECISION, **_EXACT),
    _unary("round-nearest-afz", FLOATS, cycles="select", **_EXACT),
    _unary("round-nearest-even", FLOATS, cycles="select", **_EXACT),
    _unary("rsqrt", _ANALYTIC, cost=3, pole=(0, 0.0)),
    _unary("sign", NUMBERS, cycles="select", **_EXACT),
    _unary("sine", _ANALYTIC, bounded=True, code=24),
    _unary("sqrt", _ANALYTIC, cost=8, propagates=(0,)),
    _unary("tan", _ANALYTIC, code=48),
    _unary("tanh", _ANALYTIC, bounded=True, cost=16),
    _elementwise("bitcast-convert", shapes.bitcast_convert, ORDERED, **_EXACT),
    # Elementwise, of several operands
    _binary("add", None, neutral="zero", spreads_nan=True, **_RING),
    _binary("and", INTEGERS | PRED, commutative=True, neutral="all ones"),
    _binary("atan2", FLOATS, code=24),
    _elementwise("clamp", shapes.clamp, ORDERED, cycles="select", **_EXACT),
    _elementwise("compare", shapes.compare, attributes=("direction", "comparison_type")),
    _elementwise("complex", shapes.complex_of_parts, frozenset(shapes.COMPLEX_TYPES)),
    _binary("divide", NUMBERS, cost=6, pole=(1, 0.0), propagates=(0,), spreads_nan=True),
    _binary("maximum", ORDERED, neutral="lowest", **_EXTREMUM),
    # As in IEEE 754, the result for a number and NaN is the number.
    _binary("maximum-number", FLOATS, cycles="maximum", neutral="nan", **_EXTREMUM),
    _binary("minimum", ORDERED, cycles="maximum", neutral="highest", **_EXTREMUM),
    _binary("multiply", None, cycles="add", neutral="one", spreads_nan=True, **_RING),
    _binary("or", INTEGERS | PRED, cycles="and", commutative=True, neutral="zero"),
    _binary("power", NUMBERS, code=24, pole=(0, 0.0)),
    _binary("remainder", FLOATS | INTEGERS, exact=True),
    _elementwise("select", shapes.select, None, **_EXACT),
    _binary("shift-left", INTEGERS, cycles="and"),
    _binary("shift-right-arithmetic", INTEGERS, cycles="and"),
    _binary("shift-right-logical", INTEGERS, cycles="and"),
    _binary("subtract", NUMBERS, propagates=(0, 1), spreads_nan=True, cycles="add"),
    _binary("xor", INTEGERS | PRED, cycles="and", commutative=True, neutral="zero"),
    _elementwise("random-bits", shapes.random_bits, INTEGERS, raises=False, internal=True),
    # stochastic-convert rounds by itself.
    _elementwise("stochastic-convert", shapes.stochastic_convert, ORDERED, exact=True, internal=True),
    # Sources and tuples
    _lowered("constant", "source", shapes.constant, "literal", stored=False),
    _lowered("iota", "source", shapes.iota, "iota_dimension", operand_types=NUMBERS, stored=False),
    _lowered("parameter", "source", None, "parameter_number", stored=False),
    _lowered("get-tuple-element", "tuple", shapes.get_tuple_element, "tuple_index", stored=False),
    _lowered("tuple", "tuple", shapes.tuple_of, stored=False),
    # Data movement
    _lowered("broadcast", "data movement", shapes.broadcast, "dimensions", affine=True, stored=False),
    _lowered("concatenate", "data movement", shapes.concatenate, "dimensions"),
    _lowered("dynamic-slice", "data movement", structured.dynamic_slice, "dynamic_slice_sizes", cycles="gather"),
    _lowered("dynamic-update-slice", "data movement", structured.dynamic_update_slice, cycles="gather"),
    _lowered(
        *("gather", "data movement", structured.gather),
        *("gather_dimension_numbers", "gather_slice_sizes", "indices_are_sorted"),
    ),
    _lowered("optimization-barrier", "data movement", shapes.same_as_any_operand, stored=False),
    _lowered("pad", "data movement", shapes.pad, "padding_config"),
    _lowered("reshape", "data movement", shapes.reshape, affine=True, stored=False),
    _lowered("reverse", "data movement", shapes.reverse, "dimensions", affine=True),
    _lowered("slice", "data movement", shapes.slice_of, "slice_dimensions", affine=True),
    _lowered("transpose", "data movement", shapes.transpose, "dimensions", affine=True),
    # Contractions, linear algebra
    _lowered(
        *("convolution", "contraction", structured.convolution, "window", "convolution_dimension_numbers"),
        *("feature_group_count", "batch_group_count", "operand_precision"),
        operand_types=NUMBERS,
    ),
    _lowered("dot", "contraction", structured.dot, "dot_dimension_numbers", "operand_precision", operand_types=NUMBERS),
    _lowered("cholesky", "linear algebra", structured.solution, "lower", operand_types=_ANALYTIC),
    _lowered(
        *("triangular-solve", "linear algebra", structured.solution),
        *("left_side", "lower", "unit_diagonal", "transpose_a"),
        operand_types=_ANALYTIC,
    ),
    _lowered("fft", "transform", structured.fft, "fft_type", "fft_length", operand_types=COMPLEX | {"f32", "f64"}),
    # Elements combined by a scalar computation
    _lowered("reduce", "reduction", structured.reduce, "dimensions"),
    _lowered("reduce-window", "reduction", structured.reduce_window, "window"),
    _lowered(
        *("scatter", "reduction", structured.scatter),
        *("scatter_dimension_numbers", "indices_are_sorted", "unique_indices"),
        cycles="gather",
    ),
    _lowered("select-and-scatter", "reduction", structured.select_and_scatter, "window", called=("select", "scatter")),
    _lowered("sort", "sort", structured.sort, "dimensions", "is_stable"),
    # Random numbers
    _lowered("rng", "random", structured.rng, "distribution", effect="state"),
    _lowered("rng-bit-generator", "random", structured.rng_bit_generator, "rng_algorithm"),
    _lowered("rng-get-and-update-state", "random", shapes.rng_state, effect="state", internal=True),
    # Computations
    _lowered("conditional", "control flow", shapes.conditional, called=("branch_computations",)),
    _lowered("while", "control flow", shapes.while_loop, called=("body", "condition")),
    _lowered("fusion", "application", shapes.call, internal=True),
    _lowered("call", "control flow", shapes.call),
    _other("map", "application", "pass", structured.map_of, attributes=("dimensions",)),
    # Rewritten before lowering
    *(
        _other(
            *(name, "normalization", "pass", structured.batch_norm),
            operand_types=FLOATS,
            attributes=("epsilon", "feature_index"),
        )
        for name in ("batch-norm-grad", "batch-norm-inference", "batch-norm-training")
    ),
    _other("get-dimension-size", "dynamic size", "pass", shapes.dimension_size, attributes=("dimensions",)),
    _other("set-dimension-size", "dynamic size", "pass", shapes.dimension_size, attributes=("dimensions",)),
    _other("after-all", "token", "pass", shapes.after_all),
    # The host's side. Queues are custom calls; HLO's own exchange has no counterpart.
    _lowered("custom-call", "host", None, "custom_call_target", "backend_config", "custom_call_has_side_effect"),
    *(
        _other(name, "host", "none", None, effect="host")
        for name in ("infeed", "outfeed", "recv", "recv-done", "send", "send-done", "trace")
    ),
)
OPCODES: dict[str, Opcode] = {row.name: row for row in _ROWS}
"""The row of each opcode."""


def opcodes_of(*kinds: Kind) -> frozenset[str]:
    """The opcodes of some kinds."""
    return frozenset(row.name for row in _ROWS if row.kind in kinds)


def opcodes_that(holds: Callable[[Opcode], object]) -> frozenset[str]:
    """The opcodes for whose rows `holds` is true."""
    return frozenset(row.name for row in _ROWS if holds(row))


ELEMENTWISE = opcodes_of("elementwise")
"""Opcodes that compute each element of the result from the operands' elements at the same index (bitcast-convert only
if both types are equally wide)."""
COMPLEX_ELEMENTWISE = opcodes_that(
    lambda row: row.kind == "elementwise" and (row.name == "complex" or COMPLEX <= (row.operand_types or COMPLEX))
)
"""Opcodes with complex operands or a complex result."""
AFFINE = opcodes_that(lambda row: row.affine)
"""Opcodes whose elements are elements of the operand, by an affine index map."""
DATA_MOVEMENT = AFFINE | opcodes_of("data movement")
"""Opcodes that move data only."""
CONTRACTIONS = opcodes_of("contraction")
REDUCTIONS = opcodes_of("reduction")
"""Opcodes that combine elements by a scalar computation, the last that they call."""
LINEAR_ALGEBRA = opcodes_of("linear algebra")
CONTROL_FLOW = opcodes_of("control flow")
"""Opcodes that call computations of the module, not of scalars."""
TUPLES = opcodes_of("tuple")
SOURCES = opcodes_of("source")
COMMUTATIVE = opcodes_that(lambda row: row.commutative)
"""Opcodes whose two operands may be exchanged without changing the value. That is enough in the body of a reduction,
whose order HLO leaves open. `engine.ir.properties.is_commutative` is stricter: no bit may change.
"""
ASSOCIATIVE = opcodes_that(lambda row: row.associative)
NOT_STORED = opcodes_that(lambda row: not row.stored)
"""Opcodes whose results have no memory: their users read the operands'."""
EXACT = opcodes_that(lambda row: row.exact)
QUIET = opcodes_that(lambda row: not row.raises)
"""Elementwise operations that raise no floating-point exception."""
NAN_SPREADS = opcodes_that(lambda row: row.spreads_nan)
"""Operations whose result is NaN where an operand is."""
EFFECTS = opcodes_that(lambda row: row.effect)
"""Opcodes with side effects: they run as often, and in the same order, as they are in the module."""


def inferred_shape(instruction: Instruction) -> AnyShape:
    """The shape that follows from an instruction's operands and attributes.

    Raises InternalError where these contradict each other, and for an opcode whose row has no shape rule.
    """
    row = OPCODES.get(instruction.opcode)
    if row is None or row.shape is None:
        raise InternalError(f"Expected an opcode with a shape rule. Received: {instruction.opcode}; give the shape.")
    return row.shape(instruction)


def neutral_element(opcode: str, element_type: str) -> bool | int | float | complex:
    """The element that leaves any value unchanged, bit for bit: of a sum -0, since 0 + -0 would lose the sign."""
    name = OPCODES[opcode].neutral
    if element_type in PRED:
        return name in ("one", "highest", "all ones")
    if element_type in INTEGERS:
        limits = np.iinfo(NUMPY_TYPES[element_type])
        ones = -1 if limits.min else limits.max
        return int({"zero": 0, "one": 1, "lowest": limits.min, "highest": limits.max, "all ones": ones}[name])
    value = {"zero": -0.0, "one": 1.0, "lowest": -np.inf, "highest": np.inf, "nan": np.nan}[name]
    return complex(value, -0.0 if name == "zero" else 0.0) if element_type in COMPLEX else value


def require_registered(registry: Collection[str], what: str, needed: Collection[str]) -> None:
    """Raises InternalError for an opcode of `needed` that is not in `registry`, and for one there without a row."""
    missing, unknown = sorted(set(needed) - set(registry)), sorted(set(registry) - OPCODES.keys())
    if missing or unknown:
        raise InternalError(
            f"Expected one {what} for each opcode whose row in engine.ir.opcodes asks for it. "
            f"Received: none for {', '.join(missing) or 'no opcode'}; of no row: {', '.join(unknown) or 'none'}. "
            f"Register the {what}, or correct the row's `execution`."
        )


T = TypeVar("T", bound=Callable[..., Any])


def registering(table: dict[str, T]) -> Callable[..., Callable[[T], T]]:
    """A decorator for functions of a table: it enters one under the opcodes that it is given."""

    def under(*opcodes: str) -> Callable[[T], T]:
        def register(function: T) -> T:
            assert not table.keys() & {*opcodes}, opcodes
            table.update(dict.fromkeys(opcodes, function))
            return function

        return register

    return under
