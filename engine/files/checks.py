"""Rules for modules from files, beyond the shape rules: no program may read or write outside its memory.

The rules of engine.ir trust the compiler that built a module in most of its attributes; here no attribute is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from string import Formatter
from typing import get_args

from engine.errors import InternalError, ResourceLimit
from engine.files.trust import check_vertex
from engine.ir import Instruction, Module, Shape, TupleShape
from engine.ir.device_operations import FIRST_OF_EQUAL, INFEED, QUEUES, VERTEX, queue_of, target_of
from engine.ir.factorizations import FACTORIZATIONS, factorization_shapes
from engine.ir.interpolation import INTERPOLATION, interpolation_shape
from engine.ir.opcodes import CONTROL_FLOW, opcodes_that, registering
from engine.ir.shape import INTEGERS
from engine.ir.shape_rules import array_operands, array_result, require
from engine.ir.value_checks import VALUE_CHECK, CheckKind, ValueCheck
from engine.ir.verifier import verify
from engine.resource_limits import above, current_limits

Check = Callable[[Instruction], None]
CHECKS: dict[str, Check] = {}
IN_FILES = opcodes_that(lambda row: row.execution != "none" and not row.internal)
TOKEN = Shape("s32")
MOST_APPLIED = 256
"""Most instructions of a computation that a sort, a reduction or the like applies to elements."""


def check_module(module: Module) -> None:
    """Raises InternalError for the first broken rule, ResourceLimit for a large array; callers add the file's name."""
    space = current_limits().most_bytes
    for computation in module.computations():
        for instruction in computation.instructions:
            require(
                instruction.opcode in IN_FILES,
                f"Expected operations that the engine has. Received: {instruction.opcode!r:.80}.",
            )
            size = sum(shape.bytes for shape in instruction.tuple_shapes)
            if size > space:
                raise above("bytes", f"{space} bytes of an instruction's result", f"{str(instruction.shape):.80}")
            require("literal" not in instruction.attributes or instruction.opcode == "constant", "Expected no literal.")
    verify(module)
    for computation in module.computations():
        for instruction in computation.instructions:
            if instruction.opcode not in CONTROL_FLOW:
                _check_applied(instruction)
            check = CHECKS.get(instruction.opcode)
            if check is not None:
                check(instruction)


def _check_applied(instruction: Instruction) -> None:
    """Raises ResourceLimit for a long computation that an operation applies, as it becomes one piece of machine
    code.
    """
    for each in instruction.called:
        if len(each.instructions) > MOST_APPLIED:
            expected = f"{MOST_APPLIED} instructions in what {instruction.opcode} applies"
            raise ResourceLimit(f"Expected at most {expected}. Received: {len(each.instructions)}. Divide the program.")


CUSTOM_CALLS: dict[str, Check] = {}
check_for, check_call = registering(CHECKS), registering(CUSTOM_CALLS)
"""Decorators of the check of some opcodes, or of the targets of custom calls; it runs after the shape rules, and may
raise InternalError."""


def different(dimensions: Sequence[int], rank: int, name: str) -> None:
    """Raises InternalError unless these are different dimensions of an array of rank `rank`."""
    require(
        len(set(dimensions)) == len(dimensions) and all(0 <= d < rank for d in dimensions),
        f"Expected different {name} below {rank}. Received: {tuple(dimensions)}.",
    )


def same_types(shapes: Sequence[Shape]) -> None:
    """Raises InternalError unless all shapes have one element type."""
    kinds = sorted({shape.element_type for shape in shapes})
    require(len(kinds) <= 1, f"Expected one element type. Received: {', '.join(kinds)}.")


def integer_scalars(shapes: Sequence[Shape]) -> None:
    """Raises InternalError unless all shapes are scalars of one integer type."""
    same_types(shapes)
    for shape in shapes:
        require(not shape.rank and shape.element_type in INTEGERS, f"Expected integer scalars. Received: {shape}.")


@check_for("parameter")
def _parameter(instruction: Instruction) -> None:
    require(not instruction.operands and not instruction.called, "Expected a parameter without operands.")


@check_for("while")
def _while(instruction: Instruction) -> None:
    require(isinstance(instruction.shape, TupleShape), f"Expected a tuple as state. Received: {instruction.shape}.")


@check_for("reverse")
def _reverse(instruction: Instruction) -> None:
    different(instruction["dimensions"], instruction.array_shape.rank, "dimensions")


@check_for("get-dimension-size", "set-dimension-size")
def _dimension(instruction: Instruction) -> None:
    different(instruction["dimensions"], array_operands(instruction)[0].rank, "dimensions")
    require(len(instruction["dimensions"]) == 1, "Expected one dimension.")
    integer_scalars(array_operands(instruction)[1:])


@check_for("reduce-precision")
def _reduce_precision(instruction: Instruction) -> None:
    exponent, mantissa = instruction["exponent_bits"], instruction["mantissa_bits"]
    require(1 <= exponent <= 11 and 0 <= mantissa <= 52, f"Expected bits of a float. Received: {exponent}, {mantissa}.")


@check_for("dot")
def _dot(instruction: Instruction) -> None:
    lhs, rhs = array_operands(instruction, 2)
    n = instruction["dot_dimension_numbers"]
    different((*n.lhs_batch_dimensions, *n.lhs_contracting_dimensions), lhs.rank, "dimensions of the left side")
    different((*n.rhs_batch_dimensions, *n.rhs_contracting_dimensions), rhs.rank, "dimensions of the right side")


@check_for("convolution")
def _convolution(instruction: Instruction) -> None:
    lhs, rhs = array_operands(instruction, 2)
    n = instruction["convolution_dimension_numbers"]
    same_types([lhs, rhs, instruction.array_shape])
    spatial = len(instruction["window"])
    require(lhs.rank == rhs.rank == instruction.array_shape.rank == spatial + 2, "Expected arrays of one rank.")
    for name, order in (
        ("input", (n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)),
        ("kernel", (n.kernel_input_feature_dimension, n.kernel_output_feature_dimension, *n.kernel_spatial_dimensions)),
        ("output", (n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions)),
    ):
        require(sorted(order) == list(range(lhs.rank)), f"Expected an order of the {name}'s dimensions: {order}.")


@check_for("select-and-scatter")
def _select_and_scatter(instruction: Instruction) -> None:
    operand, _, _ = array_operands(instruction, 3)
    select, scatter = instruction.called
    require(len(instruction["window"]) == operand.rank, "Expected a window of the operand's rank.")
    require(select.root.shape == Shape("pred"), f"Expected a choice pred[]. Received: {select.root.shape}.")
    require(scatter.root.shape == operand.with_dimensions(()), f"Expected a scalar. Received: {scatter.root.shape}.")


@check_for("dynamic-slice", "dynamic-update-slice")
def _dynamic(instruction: Instruction) -> None:
    shapes = array_operands(instruction)
    arrays = 1 if instruction.opcode == "dynamic-slice" else 2
    same_types(shapes[:arrays])
    integer_scalars(shapes[arrays:])


@check_for("sort")
def _sort(instruction: Instruction) -> None:
    shapes = array_operands(instruction)
    different(instruction["dimensions"], shapes[0].rank, "dimensions")


@check_for("map")
def _map(instruction: Instruction) -> None:
    shapes = array_operands(instruction)
    require(len({s.dimensions for s in shapes}) == 1, "Expected operands of the same dimensions.")
    require(not instruction.called[0].root.array_shape.rank, "Expected a body that returns a scalar.")


@check_for("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def _batch_norm(instruction: Instruction) -> None:
    operand, *features = array_operands(instruction)
    index = instruction["feature_index"]
    different((index,), operand.rank, "feature index")
    same_types([operand, *features])
    if instruction.opcode == "batch-norm-grad":
        require(features[-1] == operand and len(features) == 4, f"Expected a gradient {operand}.")
        features = features[:-1]
    count = {"batch-norm-training": 2, "batch-norm-inference": 4}.get(instruction.opcode, 3)
    require(len(features) == count, f"Expected {count} arrays of features. Received: {len(features)}.")
    for each in features:
        require(each.dimensions == (operand.dimensions[index],), f"Expected one value a feature. Received: {each}.")


@check_for("cholesky", "triangular-solve")
def _factored(instruction: Instruction) -> None:
    a, *others = array_operands(instruction)
    same_types([a, *others])
    require(a.rank >= 2 and a.dimensions[-1] == a.dimensions[-2], f"Expected square matrices. Received: {a}.")
    for b in others:
        rows = b.dimensions[-2 if instruction["left_side"] else -1] if b.rank == a.rank else -1
        fits = rows == a.dimensions[-1] and b.dimensions[:-2] == a.dimensions[:-2]
        require(fits, f"Expected right sides that fit {a}. Received: {b}.")


@check_for("fft")
def _fft(instruction: Instruction) -> None:
    (x,), result = array_operands(instruction, 1), array_result(instruction)
    lengths, name = tuple(instruction["fft_length"]), instruction["fft_type"]
    require(0 < len(lengths) <= x.rank and prod(lengths) > 0, f"Expected lengths for {x}. Received: {lengths}.")
    whole = x.dimensions[: x.rank - len(lengths)] + lengths
    half = (*whole[:-1], whole[-1] // 2 + 1)
    wide = {"c64": "f32", "c128": "f64", "f32": "f32", "f64": "f64"}.get(x.element_type, "")
    complex_type = {"f32": "c64", "f64": "c128"}.get(wide, "")
    expected = {
        "RFFT": (Shape(wide, whole), Shape(complex_type, half)),
        "IRFFT": (Shape(complex_type, half), Shape(wide, whole)),
    }.get(name, (Shape(complex_type, whole), Shape(complex_type, whole)))
    require((x, result) == expected, f"Expected {name} from {expected[0]} to {expected[1]}. Received: {x}, {result}.")


@check_for("rng")
def _rng(instruction: Instruction) -> None:
    scalar = array_result(instruction).with_dimensions(())
    require(array_operands(instruction) == [scalar, scalar], f"Expected two operands {scalar}.")


@check_for("rng-bit-generator")
def _random_bits(instruction: Instruction) -> None:
    bits = instruction.tuple_shapes[1]
    require(bits.element_type in INTEGERS, f"Expected bits of an integer type. Received: {bits}.")


@check_call(VALUE_CHECK)
def _value_check(instruction: Instruction) -> None:
    operands = array_operands(instruction)
    require(len(operands) == 2 and operands[1] == instruction.shape == TOKEN, "Expected an array and a token s32[].")
    try:
        check = ValueCheck.of(instruction)
        fields = {field for _, field, _, _ in Formatter().parse(check.message) if field is not None}
    except (KeyError, TypeError, ValueError):
        require(False, f"Expected a value check. Received: {instruction.get('backend_config')!r:.80}.")
        return
    limits = [*check.lows, *check.bounds]
    require(check.kind in get_args(CheckKind), f"Expected a kind of check. Received: {check.kind!r:.80}.")
    require(
        len(check.lows) == len(check.bounds) > 0 and all(type(k) is int and -(2**63) <= k < 2**63 for k in limits),
        "Expected as many lows as bounds, 64-bit integers.",
    )
    require(fields <= {"value", "position", "low", "bound"}, f"Expected fields of a check. Received: {fields}.")


@check_for("custom-call")
def _custom_call(instruction: Instruction) -> None:
    check = CUSTOM_CALLS.get(target_of(instruction) or "")
    if check is None:
        raise InternalError(
            f"Expected a queue, value check, vertex, factorization, interpolation or first of equal ids. "
            f"Received: {instruction.get('custom_call_target')!r:.80}."
        )
    check(instruction)


CUSTOM_CALLS[VERTEX] = check_vertex


@check_call(*FACTORIZATIONS)
def _factorization(instruction: Instruction) -> None:
    shapes = factorization_shapes(instruction)
    require(instruction.shape == TupleShape(shapes), f"Expected {shapes}. Received: {instruction.shape}.")


@check_call(INTERPOLATION)
def _interpolation(instruction: Instruction) -> None:
    made = interpolation_shape(instruction)
    require(instruction.shape == made, f"Expected {made}. Received: {instruction.shape}.")


@check_call(FIRST_OF_EQUAL)
def _first_of_equal(instruction: Instruction) -> None:
    operands = array_operands(instruction)
    fits = len(operands) == 1 and operands[0].rank == 1 and operands[0].element_type in INTEGERS
    require(fits and instruction.shape == Shape("s32", operands[0].dimensions), "Expected ids [n] and s32 [n].")


@check_call(*QUEUES)
def _queue(instruction: Instruction) -> None:
    require(bool(queue_of(instruction)), "Expected a queue with a name.")
    operands, shape = array_operands(instruction), instruction.shape
    flat = isinstance(shape, Shape) or all(isinstance(each, Shape) for each in shape.elements)
    require(flat and bool(operands), f"Expected arrays, the last one a token. Received: {shape}.")
    tokens = [operands[-1:], list(instruction.tuple_shapes[-1:])]
    require(tokens == [[TOKEN], [TOKEN]], "Expected a token s32[] in and out.")
    if instruction["custom_call_target"] == INFEED:
        require(len(operands) == 1 and len(instruction.tuple_shapes) > 1, "Expected an infeed of a token.")
    else:
        require(len(operands) > 1 and len(instruction.tuple_shapes) == 1, "Expected an outfeed that gives a token.")
