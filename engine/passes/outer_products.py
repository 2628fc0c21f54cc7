"""Replacement of dots that sum a single term by multiplications, which fuse with their readers.

For a layer with one output, the gradient by the input is such a dot; for a batch of one sample, the gradient by a
weight. Passes on loops run before: they join the dots of all iterations to one.
"""

from __future__ import annotations

from engine.ir import DotDimensionNumbers, Instruction, Module
from engine.passes import construct
from engine.passes.rewriting import RuleSet, rewrite

RULES = RuleSet()
ROUNDED_ONCE = ("f32", "f64")
"""Element types whose products need no rounding of their own."""


def outer_products(module: Module) -> Module:
    """Replaces dots of one term for each element of their result."""
    return rewrite(module, RULES)


@RULES.on("dot")
def product_of_one_term(dot: Instruction) -> Instruction | None:
    """The product of both operands, broadcast to the result; None for dots of more terms, or of none."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    shape, (lhs, rhs) = dot.array_shape, dot.operands
    kinds = {each.array_shape.element_type for each in (dot, lhs, rhs)}
    if len(kinds) != 1 or shape.element_type not in ROUNDED_ONCE:
        return None
    if any(lhs.array_shape.dimensions[d] != 1 for d in numbers.lhs_contracting_dimensions):
        return None
    batch = len(numbers.lhs_batch_dimensions)
    sides = (
        (lhs, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions),
        (rhs, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions),
    )
    factors, free = [], batch
    for operand, batches, contracted in sides:
        sizes = operand.array_shape.dimensions
        kept = [d for d in range(len(sizes)) if d not in contracted]
        places = {d: number for number, d in enumerate(batches)}
        for d in kept:
            if d not in places:
                places[d], free = free, free + 1
        # The dimensions of a broadcast's operand are in the order of its result's.
        order = sorted(kept, key=places.__getitem__)
        squeezed = construct.reshape(dot, operand, [sizes[d] for d in kept])
        sorted_operand = construct.transpose(dot, squeezed, [kept.index(d) for d in order])
        factors.append(construct.broadcast(dot, sorted_operand, shape.dimensions, [places[d] for d in order]))
    return construct.elementwise(dot, "multiply", *factors)
