"""Replacement of dots that sum a single term by multiplications, which fuse with their readers.

For a layer with one output, the gradient by the input is such a dot; for a batch of one sample, the gradient by a
weight. Passes on loops run before: they join the dots of all iterations to one.
"""

from __future__ import annotations

from engine.ir import DotDimensionNumbers, Instruction
from engine.passes import construct
from engine.passes.rewriting import on_each

ROUNDED_ONCE = ("f32", "f64")
"""Element types whose products need no rounding of their own."""


@on_each("dot")
def outer_products(dot: Instruction) -> Instruction | None:
    """Replaces a dot of one term for each element by the product of both operands, broadcast to the result."""
    numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
    shape, (lhs, rhs) = dot.array_shape, dot.operands
    kinds = {each.array_shape.element_type for each in (dot, lhs, rhs)}
    if len(kinds) != 1 or shape.element_type not in ROUNDED_ONCE:
        return None
    if any(lhs.array_shape.dimensions[d] != 1 for d in numbers.lhs_contracting_dimensions):
        return None
    batch = len(numbers.lhs_batch_dimensions)
    factors, free = [], batch
    for side, operand in enumerate(dot.operands):
        sizes, own = operand.array_shape.dimensions, numbers.free(side, operand.array_shape.rank)
        # The dimensions of a broadcast's operand are in the order of its result's.
        order, places = (*numbers.batch[side], *own), (*range(batch), *range(free, free + len(own)))
        kept, free = sorted(order), free + len(own)
        squeezed = construct.reshape(dot, operand, [sizes[d] for d in kept])
        sorted_operand = construct.transpose(dot, squeezed, [kept.index(d) for d in order])
        factors.append(construct.broadcast(dot, sorted_operand, shape.dimensions, places))
    return construct.elementwise(dot, "multiply", *factors)
