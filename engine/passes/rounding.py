"""16-bit floats as the configured chip rounds them: every rounding of a result to f16 becomes an explicit conversion.

f16 arithmetic is rounded f32 arithmetic, so an f16 operation becomes an f32 operation and the requested rounding:
a `stochastic-convert`, or a `convert` with an attribute for overflows. Each computation draws the keys of its
roundings once whenever it runs: in each step, and in each iteration of a loop.
"""

from __future__ import annotations

import numpy as np

from engine.ir import AnyShape, Computation, Instruction, Module, Shape, SliceDimension, TupleShape
from engine.ir.floating_point import REPLICAS, ROUNDING_SCOPE, SCOPE_OFF, SCOPE_ON, VARYING, FloatingPoint
from engine.ir.opcodes import CONTRACTIONS, ELEMENTWISE, EXACT, LINEAR_ALGEBRA, REDUCTIONS
from engine.ir.properties import steered_computations
from engine.passes.construct import broadcast, constant, convert, reshape, slice_of
from engine.passes.rewriting import Visit, changed, make, rewrite_each

HALF, WIDE = "f16", "f32"
EXACT_SOURCES = frozenset({"f16", "pred", "s8", "u8"})
ROUNDED = CONTRACTIONS | LINEAR_ALGEBRA | (ELEMENTWISE - EXACT)
"""Operations whose f16 results need rounding; others are exact, round by themselves, or as their bodies do."""
KEYS_PER_COUNTER = 4


def explicit_rounding(module: Module, floating_point: FloatingPoint) -> Module:
    """The module with the requested roundings to f16; the same module if IEEE's are requested everywhere.

    Some still round to nearest: constants, which the host computes, the distributions of `rng`, and bodies of
    `map` and `sort`. f64 and integers are rounded stochastically by way of f32, which is all that a chip has.
    """
    if floating_point.overflow == "infinity" and not _has_scopes(module):
        return module
    steered = steered_computations(module)
    bodies = WidenedBodies()

    def visit_for(computation: Computation) -> Visit:
        if computation not in steered:
            return lambda before, instruction: None
        return _Roundings(computation, floating_point, bodies).visit

    return rewrite_each(module, visit_for)


def _has_scopes(module: Module) -> bool:
    return any(_hint(i, ROUNDING_SCOPE) == SCOPE_ON for i in module.instructions())


def _hint(instruction: Instruction, name: str) -> str | None:
    found: str | None = instruction.get("frontend_attributes", {}).get(name)
    return found


def narrows(instruction: Instruction) -> bool:
    """Whether a result of the instruction is f16 and had to be rounded to it."""
    if all(shape.element_type != HALF for shape in instruction.tuple_shapes):
        return False
    if instruction.opcode == "convert":
        return instruction.operands[0].array_shape.element_type not in EXACT_SOURCES and "overflow" not in (
            instruction.attributes
        )
    if instruction.opcode in REDUCTIONS:
        return any(narrows(inner) for inner in instruction.called[-1].instructions)
    return instruction.opcode in ROUNDED


class _Roundings:
    """The rules for one computation, and the keys that it draws."""

    def __init__(self, computation: Computation, floating_point: FloatingPoint, bodies: WidenedBodies) -> None:
        self._floating_point, self._bodies = floating_point, bodies
        self._count = sum(len(i.tuple_shapes) for i in computation.instructions if narrows(i))
        self._used = 0
        self._keys: Instruction | None = None
        self._positions: dict[tuple[int, ...], Instruction] = {}

    def visit(self, _: Instruction, instruction: Instruction) -> Instruction | None:
        """The rule: an f16 operation becomes the f32 operation and its rounding."""
        if not narrows(instruction):
            return None
        stochastic = self._is_stochastic(instruction)
        if not stochastic and self._floating_point.overflow == "infinity":
            return None
        if instruction.opcode == "convert":
            (x,) = instruction.operands
            if x.array_shape.element_type != WIDE and (stochastic or x.array_shape.element_type != "f64"):
                x = convert(x, x, WIDE)
            return self._rounded(instruction, x, stochastic)
        return self._split(instruction, self._computed_wide(instruction), stochastic)

    def _is_stochastic(self, instruction: Instruction) -> bool:
        scope = _hint(instruction, ROUNDING_SCOPE)
        if scope in (SCOPE_ON, SCOPE_OFF):
            return scope == SCOPE_ON
        if self._floating_point.stochastic_rounding == "replica-identical":
            return _hint(instruction, REPLICAS) != VARYING
        return self._floating_point.stochastic_rounding == "on"

    def _computed_wide(self, instruction: Instruction) -> Instruction:
        """The operation in f32. Products keep f16 operands, which their lowering reads."""
        operands = instruction.operands
        if instruction.opcode not in CONTRACTIONS:
            operands = tuple(convert(o, o, WIDE) if o.array_shape.element_type == HALF else o for o in operands)
        called = instruction.called
        if instruction.opcode in REDUCTIONS:
            called = tuple(self._bodies.of(body) for body in called)
        return changed(instruction, shape=wide_shape(instruction.shape), operands=operands, called=called)

    def _split(self, before: Instruction, wide: Instruction, stochastic: bool) -> Instruction:
        """The rounded result in place of `before`; in a tuple, each element that was f16 is rounded."""
        if not isinstance(before.shape, TupleShape):
            return self._rounded(before, wide, stochastic)
        parts = []
        for number, (old, new) in enumerate(zip(before.tuple_shapes, wide.tuple_shapes, strict=True)):
            part = make(before, "get-tuple-element", new, (wide,), tuple_index=number)
            parts.append(part if old == new else self._rounded(before, part, stochastic))
        return make(before, "tuple", before.shape, parts)

    def _rounded(self, like: Instruction, x: Instruction, stochastic: bool) -> Instruction:
        overflow = self._floating_point.overflow
        shape = x.array_shape.with_type(HALF)
        if not stochastic:
            return make(like, "convert", shape, (x,), overflow=overflow, stands_for=like.opcode)
        index = self._positions_of(like, shape)
        bits = make(like, "random-bits", index.array_shape, (index, self._next_key(like, shape)))
        return make(like, "stochastic-convert", shape, (x, bits), overflow=overflow, stands_for=like.opcode)

    def _positions_of(self, like: Instruction, shape: Shape) -> Instruction:
        """The row-major index of each element, u32."""
        if shape.dimensions not in self._positions:
            flat = Shape("u32", (shape.elements,))
            count = make(like, "iota", flat, (), iota_dimension=0)
            if not shape.rank:
                count = constant(like, [0], flat)
            self._positions[shape.dimensions] = reshape(like, count, shape.dimensions)
        return self._positions[shape.dimensions]

    def _next_key(self, like: Instruction, shape: Shape) -> Instruction:
        """A key for all elements, u32. It is broadcast before it is sliced: a codelet looks through that order."""
        if self._keys is None:
            drawn = make(
                like, "rng-get-and-update-state", Shape("u64", (3,)), (), delta=-(-self._count // KEYS_PER_COUNTER)
            )
            bits = Shape("u32", (self._count,))
            philox = make(
                like, "rng-bit-generator", TupleShape((drawn.array_shape, bits)), (drawn,), rng_algorithm="RNG_PHILOX"
            )
            self._keys = make(like, "get-tuple-element", bits, (philox,), tuple_index=1)
        at, self._used = self._used, self._used + 1
        assert at < self._count
        spread = broadcast(like, self._keys, (self._count, *shape.dimensions), (0,))
        ranges = [SliceDimension(at, at + 1, 1), *(SliceDimension(0, size, 1) for size in shape.dimensions)]
        return reshape(like, slice_of(like, spread, ranges), shape.dimensions)


class WidenedBodies:
    """Scalar computations with f32 in place of f16, built once each."""

    def __init__(self) -> None:
        self._made: dict[Computation, Computation] = {}

    def of(self, body: Computation) -> Computation:
        """The body on f32."""
        if body not in self._made:
            self._made[body] = self._widened(body)
        return self._made[body]

    def _widened(self, body: Computation) -> Computation:
        new: dict[Instruction, Instruction] = {}
        for instruction in body.instructions:
            literal = {}
            if instruction.opcode == "constant" and instruction.array_shape.element_type == HALF:
                literal = {"literal": instruction["literal"].astype(np.float32)}
            new[instruction] = changed(
                instruction,
                shape=wide_shape(instruction.shape),
                operands=[new[operand] for operand in instruction.operands],
                called=tuple(self.of(called) for called in instruction.called),
                **literal,
            )
        return Computation(f"{body.name}.{WIDE}", list(new.values()), new[body.root])


def wide_shape(shape: AnyShape) -> AnyShape:
    """The shape with f32 in place of f16."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(wide_shape(element) for element in shape.elements))
    return shape.with_type(WIDE) if shape.element_type == HALF else shape
