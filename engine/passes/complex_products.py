"""Products of complex arrays as one product of real ones, for which the engine has fast codelets.

One operand becomes [X, Y], its real parts beside its imaginary ones along a contracted dimension. The other becomes
[[U, V], [-V, U]]. Then [X, Y] @ [[U, V], [-V, U]] has the real parts of (X + iY) @ (U + iV) beside the imaginary ones.
Each part sums the products that the definition sums; only their order differs.
"""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, Module, Shape, SliceDimension
from engine.passes import construct
from engine.passes.rewriting import RuleSet, make, rewrite

LEAST_SIZES, LEAST_MULTIPLY_ADDS = (4, 8), 1 << 13
"""Least sizes of free and of contracted dimensions, and least multiply-adds of complex numbers in total."""
WHOLE, PART = "c64", "f32"
"""The element types of complex numbers and of their parts. Those of f64 have no faster codelet than those of c128."""

rules = RuleSet()


def complex_products(module: Module) -> Module:
    """Replaces dots of complex64 arrays by dots of real arrays, unless they are small."""
    return rewrite(module, rules)


def has_complex_products(module: Module) -> bool:
    """Whether a module has a large dot of complex numbers."""
    return any(each.opcode == "dot" and _is_large(each) for each in module.instructions())


def _is_large(dot: Instruction) -> bool:
    """Whether a dot of complex arrays is large enough, in total and along each operand's free and contracted part."""
    types = {each.array_shape.element_type for each in (dot, *dot.operands)}
    if types != {WHOLE}:
        return False
    sizes, numbers = dot.operands[0].array_shape.dimensions, dot["dot_dimension_numbers"]
    contracted = prod(sizes[d] for d in numbers.lhs_contracting_dimensions)
    batch = prod(sizes[d] for d in numbers.lhs_batch_dimensions)
    free = [each.array_shape.elements // max(1, contracted * batch) for each in dot.operands]
    is_wide = min(free) >= LEAST_SIZES[0] and contracted >= LEAST_SIZES[1]
    return is_wide and dot.array_shape.elements * contracted >= LEAST_MULTIPLY_ADDS


@rules.on("dot")
def real_product(dot: Instruction) -> Instruction | None:
    """The real dot in place of a complex one, with the smaller operand doubled."""
    if not _is_large(dot):
        return None
    numbers, (a, b) = dot["dot_dimension_numbers"], dot.operands
    contracted = numbers.contracting
    free = [numbers.free(side, each.array_shape.rank) for side, each in enumerate((a, b))]
    doubled = min((0, 1), key=lambda k: dot.operands[k].array_shape.elements)
    operands = [_beside(dot, *parts_of(dot, each), contracted[k][-1]) for k, each in enumerate((a, b))]
    wide = free[doubled][-1]
    operands[doubled] = _doubled(dot, dot.operands[doubled], contracted[doubled][-1], wide)
    # The result of a dot has the batch's dimensions, then the left operand's, then the right operand's.
    along = len(numbers.lhs_batch_dimensions) + len(free[0]) - 1 + (len(free[1]) if doubled else 0)
    product = construct.inferred(dot, "dot", *operands, hint=Shape(PART), **dot.attributes)
    size, parts = dot.array_shape.dimensions[along], []
    for first in (0, size):
        slices = [SliceDimension(0, each) for each in dot.array_shape.dimensions]
        slices[along] = SliceDimension(first, first + size)
        parts.append(construct.slice_of(dot, product, slices))
    return make(dot, "complex", dot.shape, parts)


@rules.on("real", "imag", of="complex")
def part_of_complex(part: Instruction) -> Instruction | None:
    """Reads the real or imaginary part of a number that is made of two parts."""
    return part.operands[0].operands[part.opcode == "imag"]


def parts_of(like: Instruction, operand: Instruction) -> tuple[Instruction, Instruction]:
    """The real and the imaginary parts of a complex array."""
    return construct.inferred(like, "real", operand), construct.inferred(like, "imag", operand)


def _doubled(dot: Instruction, operand: Instruction, along: int, wide: int) -> Instruction:
    """[[U, V], [-V, U]]: blocks below each other along the contracted dimension, beside each other along a free one."""
    real, imaginary = parts_of(dot, operand)
    negative = construct.elementwise(dot, "negate", imaginary)
    return _beside(dot, _beside(dot, real, negative, along), _beside(dot, imaginary, real, along), wide)


def _beside(dot: Instruction, first: Instruction, second: Instruction, dimension: int) -> Instruction:
    return construct.inferred(dot, "concatenate", first, second, dimensions=(dimension,))
