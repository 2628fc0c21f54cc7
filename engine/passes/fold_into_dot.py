"""Folds transposes, reversals, padding and sums over batches into the dots and convolutions before or after them."""

from __future__ import annotations

from engine.ir import Computation, DotDimensionNumbers, Instruction, Module
from engine.ops.apply import single_operation
from engine.passes.rewriting import RuleSet, Visit, changed, rewrite, rewrite_each
from engine.passes.rules import convolution
from engine.passes.splats import is_splat_of

RULES = RuleSet(convolution.RULES)
HALF_TYPES = ("f16", "bf16")


def fold_into_dot(module: Module) -> Module:
    """Folds a transpose or sum of a dot's or convolution's result only if the product has no other reader."""
    return rewrite(rewrite_each(module, _fold_results), RULES)


def _fold_results(computation: Computation) -> Visit:
    users = computation.users()
    single = {i for i in computation.instructions if len(users[i]) == 1 and i is not computation.root}

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if not before.operands or before.operands[0] not in single:
            return None
        product = instruction.operands[0]
        if instruction.opcode == "reduce":
            if product.opcode == "convert" and before.operands[0].operands[0] in single:
                product = _widened(product)
            return summed_dot(instruction, product) if product.opcode == "dot" else None
        if instruction.opcode == "convert":
            return narrow_dot(instruction, product) if product.opcode == "dot" else None
        if instruction.opcode != "transpose":
            return None
        if product.opcode == "dot":
            return transposed_dot(instruction, product)
        return convolution.transposed_convolution(instruction, product) if product.opcode == "convolution" else None

    return visit


def _widened(convert: Instruction) -> Instruction:
    """The 16-bit operand of a conversion to f32; other conversions themselves.

    A sum of its batches then is not rounded, where the sum of the conversion's rounds each batch's result.
    """
    (product,) = convert.operands
    is_half = product.array_shape.element_type in HALF_TYPES and convert.array_shape.element_type == "f32"
    return product if is_half else convert


def narrow_dot(convert: Instruction, dot: Instruction) -> Instruction | None:
    """The dot whose f32 sums are rounded to the 16-bit type of its operands, or None."""
    kind = convert.array_shape.element_type
    types = [each.array_shape.element_type for each in (*dot.operands, dot)]
    return changed(dot, shape=convert.shape) if kind in HALF_TYPES and types == [kind, kind, "f32"] else None


@RULES.on("dot")
def transposed_operand(instruction: Instruction) -> Instruction | None:
    """Reads an operand without its transpose, if its free dimensions keep their order."""
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    operands = list(instruction.operands)
    for side, operand in enumerate(operands):
        order = operand["dimensions"] if operand.opcode == "transpose" else ()
        free = [order[d] for d in numbers.free(side, len(order))]
        if order and free == sorted(free):
            operands[side], new = operand.operands[0], numbers.renumbered(side, order.__getitem__)
            return changed(instruction, operands=operands, dot_dimension_numbers=new)
    return None


def transposed_dot(transpose: Instruction, dot: Instruction) -> Instruction | None:
    """The dot whose result is the transposed result of another; None if there is none."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    permutation = transpose["dimensions"]
    lhs, rhs = dot.operands
    batch = len(numbers.lhs_batch_dimensions)
    lhs_free = len(numbers.free(0, lhs.array_shape.rank))
    order = permutation[:batch]
    left, right = tuple(range(batch, batch + lhs_free)), tuple(range(batch + lhs_free, len(permutation)))
    if sorted(order) != list(range(batch)) or permutation[batch:] not in (left + right, right + left):
        return None
    lhs_batch, rhs_batch = (tuple(each[d] for d in order) for each in numbers.batch)
    if permutation[batch:] == left + right:
        new = DotDimensionNumbers(*numbers.contracting, lhs_batch, rhs_batch)
        return changed(dot, shape=transpose.shape, dot_dimension_numbers=new)
    new = DotDimensionNumbers(*numbers.contracting[::-1], rhs_batch, lhs_batch)
    return _with_operands_exchanged(changed(dot, shape=transpose.shape, operands=(rhs, lhs), dot_dimension_numbers=new))


def summed_dot(reduce: Instruction, dot: Instruction) -> Instruction | None:
    """The dot that contracts the batches a reduce adds up (the gradient of weights that batches share), or None."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    summed = reduce["dimensions"]
    if len(reduce.operands) != 2 or reduce.array_shape.element_type not in ("f32", "f64"):
        return None
    if single_operation(reduce.called[0]) != "add" or not is_splat_of(reduce.operands[1], 0):
        return None
    if any(d >= len(numbers.lhs_batch_dimensions) for d in summed):
        return None
    kept = [d for d in range(len(numbers.lhs_batch_dimensions)) if d not in summed]
    new = DotDimensionNumbers(
        *((*old, *(batch[d] for d in summed)) for old, batch in zip(numbers.contracting, numbers.batch, strict=True)),
        *(tuple(batch[d] for d in kept) for batch in numbers.batch),
    )
    return changed(dot, shape=reduce.shape, dot_dimension_numbers=new)


def _with_operands_exchanged(dot: Instruction) -> Instruction:
    """The dot with its operand precisions exchanged, as its operands have been."""
    precision = dot.get("operand_precision")
    return changed(dot, operand_precision=tuple(reversed(precision))) if precision else dot
