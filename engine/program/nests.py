"""Builds a Nest from a fused computation: its nodes, the arrays it accesses, and their strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from engine.frozen import frozen
from engine.ir import Computation, Instruction
from engine.ir.affine import Affine, IndexMap, linear, pull, spread
from engine.ir.module import needs_first
from engine.ir.opcodes import AFFINE, ASSOCIATIVE, OPCODES, SOURCES
from engine.ir.origin import Origin
from engine.ir.shape import Shape
from engine.ops.apply import single_operation
from engine.passes.fusible import is_scalar_constant, is_unit_reshape, reduced_loops
from engine.program.nest import (
    Access,
    Apply,
    Argument,
    Body,
    Constant,
    Index,
    Input,
    Nest,
    Node,
    Operation,
    Reduction,
    Store,
)
from engine.program.program import Buffer

ADDED_ATTRIBUTES = ("overflow", "result_accuracy")
"""The attributes that passes add to elementwise operations, besides HLO's."""


@dataclass(slots=True)
class Reached:
    """One array as the loops access it, in bytes: parameter `source` read, or result `source` written.

    For a count (`source` None) offset and strides are the count's start and steps.
    """

    element_type: str
    source: int | None
    offset: int
    strides: tuple[int, ...]
    writes: bool = False
    partial: bool = False


@dataclass(slots=True)
class Draft:
    """A nest under construction: all loops, nodes, and arrays with all their strides."""

    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    nodes: list[Node] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    origins: dict[int, Origin] = field(default_factory=dict)

    def count_operations(self) -> dict[str, int]:
        points = int(np.prod(self.extents, dtype=np.int64))
        opcodes = Counter(node.operation.opcode for node in self.nodes if isinstance(node, Apply))
        opcodes.update("reduce" for _ in self.reductions)
        return {opcode: count * points for opcode, count in opcodes.items()}


@frozen
class Position:
    """Position of a result in a larger array of shape `shape`: it begins at index `start` of a dimension."""

    buffer: Buffer
    shape: Shape
    dimension: int
    start: int


class Drafting:
    """Walks a fused computation from its results to its parameters, composing index maps.

    `positions` gives positions in larger arrays for results of some roots, by number.
    """

    def __init__(
        self, loops: tuple[int, ...], roots: list[Instruction], positions: Mapping[int, Position] | None = None
    ) -> None:
        self.rank = max(1, len(loops))
        reduces = [r for r in roots if r.opcode == "reduce"]
        reduced = reduced_loops(reduces[0]) if reduces else ()
        self.draft = Draft(loops or (1,), reduced or (False,) * self.rank)
        self._numbers: dict[object, int] = {}
        self._writes: int = 0
        for number, root in enumerate(roots):
            if root.opcode == "reduce":
                self._reduce(root)
            else:
                index_map = self._spread(root.array_shape)
                node = self._value(root, index_map)
                slot = positions.get(number) if positions else None
                self.draft.stores.append(Store(node, self._stored(root.array_shape, index_map, slot)))

    def _spread(self, shape: Shape) -> IndexMap:
        found = spread(shape, self.draft.extents if self.draft.extents != (1,) else ())
        assert found is not None, (shape, self.draft.extents)
        return found if self.draft.extents != (1,) else tuple(Affine((0,)) for _ in found)

    def _node(self, key: object, node: Node) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.draft.nodes)
            self.draft.nodes.append(node)
        return self._numbers[key]

    def _reach(self, element_type: str, source: int | None, position: Affine, item: int) -> int:
        strides = tuple(c * item for c in position.coefficients)
        self.draft.reached.append(Reached(element_type, source, position.constant * item, strides))
        return len(self.draft.reached) - 1

    def _written(self, shape: Shape, index_map: IndexMap, partial: bool = False) -> int:
        position = linear(shape, index_map, self.rank)
        access = self._reach(shape.element_type, self._writes, position, shape.dtype.itemsize)
        self.draft.reached[access].writes = True
        self.draft.reached[access].partial = partial
        self._writes += 1
        return access

    def _stored(self, shape: Shape, index_map: IndexMap, slot: Position | None) -> int:
        if slot is None:
            return self._written(shape, index_map)
        at = slot.dimension
        moved = (*index_map[:at], index_map[at].scaled(1, slot.start), *index_map[at + 1 :])
        return self._written(slot.shape, moved)

    def _value(self, root: Instruction, index_map: IndexMap) -> int:
        """The node of an instruction at the given indices."""
        for each in needs_first((root, index_map), lambda node: self._operands(*node), self._numbers):
            self._define(*each, [self._numbers[operand] for operand in self._operands(*each)])
        return self._numbers[(root, index_map)]

    def _operands(self, instruction: Instruction, at: IndexMap) -> list[tuple[Instruction, IndexMap]]:
        if instruction.opcode in AFFINE:
            pulled = pull(instruction, at, self.rank)
            assert pulled is not None, instruction
            return [(instruction.operands[0], pulled)]
        if instruction.opcode in SOURCES:
            return []
        shape = instruction.array_shape
        return [(o, at if o.array_shape.dimensions == shape.dimensions else ()) for o in instruction.operands]

    def _define(self, instruction: Instruction, at: IndexMap, operands: list[int]) -> None:
        key = (instruction, at)
        shape = instruction.array_shape
        if instruction.opcode in AFFINE:
            self._numbers[key] = operands[0]
        elif instruction.opcode == "parameter":
            position = linear(shape, at, self.rank)
            number = instruction["parameter_number"]
            where = ("input", number, position)
            if where not in self._numbers:
                access = self._reach(shape.element_type, number, position, shape.dtype.itemsize)
                self._node(where, Input(access))
            self._numbers[key] = self._numbers[where]
        elif is_scalar_constant(instruction):
            node = constant_node(instruction)
            self._numbers[key] = self._node(node, node)
        elif instruction.opcode == "iota":
            access = self._reach("s64", None, at[instruction["iota_dimension"]], 1)
            self._node(key, Index(access, shape.element_type))
        else:
            operation = operation_of(instruction)
            self._numbers[key] = self._node((operation, tuple(operands)), Apply(operation, tuple(operands)))
            self.draft.origins.setdefault(self._numbers[key], origin_of(instruction))

    def _reduce(self, reduce: Instruction) -> None:
        count = len(reduce.operands) // 2
        arrays, initial = reduce.operands[:count], reduce.operands[count:]
        values = tuple(self._value(a, self._spread(a.array_shape)) for a in arrays)
        starts = tuple(self._value(i, ()) for i in initial)
        kept = self._kept(reduce)
        shapes = reduce.tuple_shapes
        accesses = tuple(self._written(s, kept, partial=True) for s in shapes)
        opcode = single_operation(reduce.called[0])
        types = tuple(accumulated_in(s.element_type) if opcode in ASSOCIATIVE else s.element_type for s in shapes)
        body = opcode if count == 1 and opcode in ASSOCIATIVE else body_of(reduce.called[0])
        self.draft.origins[-1 - len(self.draft.reductions)] = origin_of(reduce)
        self.draft.reductions.append(Reduction(body, values, starts, types, accesses))

    def _kept(self, reduce: Instruction) -> IndexMap:
        """The index map of a reduce's result: its operand's map without the reduced dimensions."""
        dimensions = set(reduce["dimensions"])
        full = self._spread(reduce.operands[0].array_shape)
        return tuple(index for d, index in enumerate(full) if d not in dimensions)


def origin_of(instruction: Instruction) -> Origin:
    """Origin of an instruction, for messages of exceptions."""
    opcode = instruction.get("stands_for", instruction.opcode)
    return Origin(opcode, instruction.op_name, sum(shape.elements for shape in instruction.tuple_shapes))


def accumulated_in(element_type: str) -> str:
    """The type in which sums are kept: f32 for 16-bit floats, to which the final sum is rounded once."""
    return "f32" if element_type in ("f16", "bf16") else element_type


def constant_node(instruction: Instruction) -> Constant:
    """A constant of one element as a node."""
    value = instruction["literal"].reshape(-1)[0]
    element_type = instruction.array_shape.element_type
    if element_type == "pred":
        return Constant(element_type, str(int(value)))
    if element_type in ("c64", "c128"):
        return Constant(element_type, repr(complex(value)))
    is_number = element_type in ("f16", "bf16", "f32", "f64")
    return Constant(element_type, repr(float(value)) if is_number else str(int(value)))


def operation_of(instruction: Instruction) -> Operation:
    """The operation of an instruction, for the emitters."""
    names = (*OPCODES[instruction.opcode].attributes, *ADDED_ATTRIBUTES)
    attributes = tuple((name, instruction[name]) for name in names if instruction.get(name) is not None)
    types = tuple(o.array_shape.element_type for o in instruction.operands)
    return Operation(instruction.opcode, instruction.array_shape.element_type, types, attributes)


def body_of(computation: Computation) -> Body:
    """A reduction's body as nodes over its arguments."""
    numbers: dict[Instruction, int] = {}
    nodes: list[Node] = []
    for instruction in computation.instructions:
        if instruction.opcode == "tuple":
            continue
        if is_unit_reshape(instruction):
            numbers[instruction] = numbers[instruction.operands[0]]
            continue
        if instruction.opcode == "parameter":
            nodes.append(Argument(instruction["parameter_number"], instruction.array_shape.element_type))
        elif instruction.opcode == "constant":
            nodes.append(constant_node(instruction))
        else:
            nodes.append(Apply(operation_of(instruction), tuple(numbers[o] for o in instruction.operands)))
        numbers[instruction] = len(nodes) - 1
    root = computation.root
    results = root.operands if root.opcode == "tuple" else (root,)
    return Body(tuple(nodes), tuple(numbers[r] for r in results))


def nest_of(draft: Draft, partition: int) -> Nest:
    """The nest of a draft whose loops are collapsed, with units along loop `partition`."""
    last = len(draft.extents) - 1
    return Nest(
        reduced=draft.reduced,
        partition=partition,
        accesses=tuple(_access(r, r.strides[last], draft.extents[last]) for r in draft.reached),
        nodes=tuple(draft.nodes),
        stores=tuple(draft.stores),
        reductions=tuple(draft.reductions),
    )


def _access(reached: Reached, stride: int, extent: int) -> Access:
    if reached.source is None:
        return Access(reached.element_type, "contiguous")
    item = Shape(reached.element_type).dtype.itemsize
    if reached.writes and not reached.partial and extent == 1:
        return Access(reached.element_type, "contiguous")
    inner = "splat" if stride == 0 else "contiguous" if stride == item else "strided"
    return Access(reached.element_type, inner)
