"""Values at points of a nest, stores and accumulators: what all orders of its loops share."""

from __future__ import annotations

from collections.abc import Callable

from engine.codelets.language.lanes import I64, ITEM_BYTES, Lanes
from engine.emit import extremum, interleaving
from engine.emit.checks import Checks
from engine.emit.deferred import deferred_roundings
from engine.emit.loops import Carried, Range, joint_loop, loops_of, word
from engine.emit.point import Point, constants_of
from engine.emit.reduce import combine, without_mask_registers
from engine.emit.short_nans import short_nans
from engine.ir.opcodes import neutral_element
from engine.machine_code.llvm import ir
from engine.program.nest import Apply, Constant, Index, Input, MultiplyAdd, Nest, Parameter, Reduction

Addresses = list[ir.Value]
Loops = list[tuple[int, ...]]
Leaf = Callable[[Addresses, Carried], Carried]


def _is_parallel(reduction: Reduction) -> bool:
    """Whether each lane may reduce a part of the values."""
    return isinstance(reduction.combine, str) or extremum.sign_of(reduction) is not None


class NestEmitter:
    """Evaluates and stores points of a nest. The last dimension runs in lanes."""

    ranges: list[Range]
    """The begin and the end of each dimension's loop."""

    def __init__(self, nest: Nest, builder: ir.IRBuilder, width: int) -> None:
        self.nest, self.builder = nest, builder
        last = nest.rank - 1
        self.lanes_reduced = nest.reduced[last]
        serial = self.lanes_reduced and any(not _is_parallel(r) for r in nest.reductions)
        # A general body need not be associative: it takes its values one by one, in order.
        self.lanes = Lanes(builder, 1 if serial else width)
        self.block, self.lo, self.hi, scratch = builder.function.args
        self.extents = [self._parameter(1 + d) for d in range(nest.rank)]
        words = [nest.access_word(k) for k in range(len(nest.accesses))]
        self.bases = [self._parameter(w) for w in words]
        self.strides = [[self._parameter(w + 1 + d) for d in range(nest.rank)] for w in words]
        self.pitches = [self._parameter(w + 1 + nest.rank) for w in words]
        counts = {node.access for node in nest.nodes if isinstance(node, Index)}
        self.neighbours = [each.inner == "contiguous" and k not in counts for k, each in enumerate(nest.accesses)]
        self.steps = [
            word(ITEM_BYTES[access.element_type]) if near else strides[last]
            for access, near, strides in zip(nest.accesses, self.neighbours, self.strides, strict=True)
        ]
        self.checks = Checks(nest, builder, self._parameter(nest.record_word), scratch) if nest.exceptions else None
        self.constants = constants_of(nest, builder, self.block)
        self.parallel = loops_of([d for d in range(last) if not nest.reduced[d]])
        self.reduced = loops_of([d for d in range(last) if nest.reduced[d]])
        self.roundings = deferred_roundings(nest), short_nans(nest)
        self.alternates = interleaving.vectors_alternate(nest)

    def _parameter(self, index: int) -> ir.Value:
        pointer = self.builder.inttoptr(self.block, I64.as_pointer())
        return self.builder.load(self.builder.gep(pointer, [word(index)]))

    def _moved(self, addresses: Addresses, dimension: int, index: ir.Value) -> Addresses:
        """Moves the addresses of all accesses, or of several copies of them, by `index` along a dimension."""
        strides = self.strides * (len(addresses) // len(self.strides)) if self.strides else []
        return [
            self.builder.add(address, self.builder.mul(index, each[dimension]))
            for address, each in zip(addresses, strides, strict=True)
        ]

    def _along(self, addresses: Addresses, index: ir.Value) -> Addresses:
        """Moves the addresses along the last dimension; contiguous ones become pointers that share one index."""
        return [
            self.lanes.element(address, access.element_type, index)
            if near
            else self.builder.add(address, self.builder.mul(index, step))
            for address, access, near, step in zip(
                addresses, self.nest.accesses, self.neighbours, self.steps, strict=True
            )
        ]

    def _loops(self, loops: Loops, addresses: Addresses, held: Carried, leaf: Leaf) -> Carried:
        """Emits nested loops over dimensions: held = leaf(addresses, held), with the addresses at each index."""
        if not loops:
            return leaf(addresses, held)

        def at(indices: Carried, inside: Carried) -> Carried:
            moved = addresses
            for dimension, index in zip(loops[0], indices, strict=True):
                moved = self._moved(moved, dimension, index)
            return self._loops(loops[1:], moved, inside, leaf)

        return joint_loop(self.builder, [self.ranges[d] for d in loops[0]], held, at)

    def _point(self, addresses: Addresses, mask: ir.Value | None, ready: dict[int, ir.Value] | None = None) -> Point:
        nodes, accesses = self.nest.nodes, self.nest.accesses
        more = *self.roundings, self.constants
        return Point(self.lanes, nodes, accesses, addresses, self.steps, mask, ready, *more)

    def _invariants(self, addresses: Addresses, loaded: dict[int, ir.Value] | None = None) -> dict[int, ir.Value]:
        """Values before the lane loop that no lane of it changes: splats, `loaded` values, and what is made of these.

        LLVM cannot prove that no store aliases the splats.
        """
        point = self._point(addresses, None, loaded)
        for number in point.needed(*self._results()):
            node = self.nest.nodes[number]
            splat = isinstance(node, Input) and self.nest.accesses[node.access].inner == "splat"
            made, operands = isinstance(node, Apply | Constant | Parameter | MultiplyAdd), getattr(node, "operands", ())
            if splat or (made and all(map(point.has, operands))):
                point.value(number)
        return point.values

    def _combine_points(self, points: list[Point], held: Carried, mask: ir.Value | None) -> Carried:
        """Combines vectors side by side with the accumulators of each, or one by one with those of one vector.

        Accumulators of further vectors stay as they are.
        """
        each, after = sum(len(reduction.values) for reduction in self.nest.reductions), list(held)
        for number, point in enumerate(points):
            first = number * each % len(held) if held else 0
            own = slice(first, first + each)
            after[own] = self._combine_point(point, after[own], mask)
        return after

    def _combine_point(self, point: Point, held: Carried, mask: ir.Value | None) -> Carried:
        """Stores and accumulates at one point; lanes outside `mask` count as neutral."""
        self._store_points(point)
        after: Carried = []
        for reduction in self.nest.reductions:
            count = len(reduction.values)
            values = [point.value(v) for v in reduction.values]
            own = held[len(after) : len(after) + count]
            if self.lanes_reduced and self.lanes.width > 1 and not isinstance(reduction.combine, str):
                after += extremum.take(self.lanes, reduction, own, values, mask)
                continue
            if mask is not None:
                assert isinstance(reduction.combine, str)
                nothing = self._neutral(reduction)
                values = [self.lanes.select(mask, values[0], nothing)]
            if own[0].type != values[0].type:
                values = [without_mask_registers(self.lanes, values[0])]
            after += combine(self.lanes, reduction, own, values)
        if self.checks is not None:
            self.checks.point(point)
        return after

    def _results(self) -> list[int]:
        """The nodes that are stored or reduced."""
        stored = [store.node for store in self.nest.stores]
        return stored + [value for reduction in self.nest.reductions for value in reduction.values]

    def _store_points(self, point: Point) -> None:
        for store in self.nest.stores:  # all values before the first store
            point.value(store.node)
        for store in self.nest.stores:
            point.store(store.node, store.access)

    def _store_columns(self, addresses: Addresses, mask: ir.Value | None, held: Carried) -> None:
        accesses = [(number, a) for number, r in enumerate(self.nest.reductions) for a in r.accesses]
        for (number, access), value in zip(accesses, held, strict=True):
            element_type = self.nest.accesses[access].element_type
            value = self.lanes.rounded(value, element_type)
            if self.checks is not None:
                self.checks.sum(number, self.lanes, value, element_type, mask)
            if self.nest.accesses[access].inner == "contiguous":
                self.lanes.store(value, addresses[access], element_type, mask)
            else:
                self.lanes.store_strided(value, addresses[access], self.steps[access], element_type, mask)

    def _neutral(self, reduction: Reduction) -> ir.Constant:
        element_type = reduction.element_types[0]
        return self.lanes.constant(element_type, neutral_element(str(reduction.combine), element_type))

    def _neutral_accumulators(self) -> Carried:
        return [self._neutral(r) for r in self.nest.reductions]

    def _lane_accumulators(self, addresses: Addresses) -> Carried:
        """Neutral elements, but the initial value for a greatest or least value, which may take it twice."""
        held: Carried = []
        initial = self._initial(addresses, self.lanes)
        for reduction in self.nest.reductions:
            general = not isinstance(reduction.combine, str)
            held += (
                initial[len(held) :][:2] if general else [without_mask_registers(self.lanes, self._neutral(reduction))]
            )
        return held

    def _initial(self, addresses: Addresses, lanes: Lanes | None = None) -> Carried:
        """The reductions' initial values, splat to the width of `lanes` (by default one lane)."""
        lanes = lanes or Lanes(self.builder, 1)
        point = Point(lanes, self.nest.nodes, self.nest.accesses, addresses, self.steps, None, constants=self.constants)
        return [point.value(node) for reduction in self.nest.reductions for node in reduction.initial]
