"""Emission of a Nest as LLVM IR: one function `void f(i64 parameters, i64 lo, i64 hi, i64 scratch)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd

from engine.codelets.language.lanes import HALF_TYPES, SIDE_BY_SIDE, Lanes
from engine.emit import extremum, interleaving
from engine.emit.contraction import contracted
from engine.emit.loops import Carried, begun, counted_loop, if_less, lane_loop, last_lanes, word
from engine.emit.nest_emitter import Addresses, NestEmitter
from engine.emit.point import Point
from engine.emit.reduce import across_lanes, as_lanes, combine
from engine.emit.repeated_rows import folded_rows, repeated_rows
from engine.machine_code.llvm import ir
from engine.program.nest import Nest

LONG_ROW = 64
"""Least columns of a row that is read at a stretch, with accumulators in memory. Rows of 32 in the cache lost."""
BLOCK = 1024
"""Columns whose accumulators stay in the first-level cache from row to row."""


def emit_codelet(nest: Nest, name: str, width: int) -> str:
    """Writes the LLVM IR text of a module with the one function `name`."""
    builder = begun(name)
    CodeletEmitter(contracted(nest), builder, width).emit()
    return str(builder.module)


class CodeletEmitter(NestEmitter):
    """Emits the loops of a nest. The last dimension runs in lanes; reduced dimensions run inside parallel ones."""

    def emit(self) -> None:
        builder, nest = self.builder, self.nest
        grain, extent = self._parameter(0), self.extents[nest.partition]
        if nest.splits_reduction:
            counted_loop(builder, self.lo, self.hi, 1, [], lambda unit, _: self._partial(unit, grain, extent))
        else:
            self._set_range(builder.mul(self.lo, grain), builder.mul(self.hi, grain), extent)
            self._parallel_loops(self.bases)
        builder.ret_void()

    def _set_range(self, start: ir.Value, stop: ir.Value, extent: ir.Value) -> None:
        self.ranges = [(word(0), e) for e in self.extents]
        stop = self.builder.select(self.builder.icmp_signed("<", stop, extent), stop, extent)
        self.ranges[self.nest.partition] = (start, stop)
        self.mask = last_lanes(self.lanes, *self.ranges[-1])

    def _partial(self, unit: ir.Value, grain: ir.Value, extent: ir.Value) -> Carried:
        start = self.builder.mul(unit, grain)
        self._set_range(start, self.builder.add(start, grain), extent)
        offsets = [self.builder.mul(unit, pitch) for pitch in self.pitches]
        self._parallel_loops([self.builder.add(b, o) for b, o in zip(self.bases, offsets, strict=True)])
        return []

    def _parallel_loops(self, addresses: Addresses) -> None:
        if self.nest.period and self.lanes.width > 1:
            self._line(addresses)
            return

        def leaf(moved: Addresses, _: Carried) -> Carried:
            (self._row if self.lanes_reduced else self._columns)(moved)
            return []

        self._loops(self.parallel, addresses, [], leaf)

    def _row(self, addresses: Addresses) -> None:
        """Reduces the last dimension: vector accumulators, combined across lanes at the end.

        Several are side by side where all dimensions are reduced: a sum waits for the one before it.
        """
        nest, lanes = self.nest, self.lanes
        if lanes.width > 1:
            held = self._lane_accumulators(addresses)
        else:
            held = self._neutral_accumulators() if nest.splits_reduction else self._initial(addresses)
        wide = lanes.width > 1 and not self.parallel and all(isinstance(each.combine, str) for each in nest.reductions)
        together = SIDE_BY_SIDE if wide and interleaving.is_short(nest) else 1
        several = (SIDE_BY_SIDE,) if together > 1 or (self.alternates and lanes.width > 1) else ()

        def inner(at: Addresses, inside: Carried) -> Carried:
            ready = self._invariants(at)

            def leaf(index: ir.Value, count: int, mask: ir.Value | None, held: Carried) -> Carried:
                indices = [self.builder.add(index, word(number * lanes.width)) for number in range(count)]
                points = [self._point(self._along(at, each), mask, ready) for each in indices]
                if count > 1:
                    interleaving.evaluate_together(points, self._results(), self.alternates)
                return self._combine_points(points, held, mask)

            return lane_loop(lanes, *self.ranges[-1], self.mask, inside, leaf, several)

        held = self._loops(self.reduced, addresses, held * together, inner)
        held = self._folded(held, 1) if together > 1 else held
        one = Lanes(self.builder, 1)
        initial = None if nest.splits_reduction or lanes.width == 1 else self._initial(addresses)
        position = 0
        for order, reduction in enumerate(nest.reductions):
            if lanes.width > 1 and not isinstance(reduction.combine, str):
                held[position : position + 2] = extremum.first_of(lanes, reduction, held[position : position + 2])
            for number, access in enumerate(reduction.accesses):
                value = held[position]
                if lanes.width > 1 and isinstance(reduction.combine, str):
                    kind = reduction.element_types[number]
                    value = across_lanes(lanes, reduction.combine, kind, as_lanes(lanes, value, kind))
                    if initial is not None:
                        value = combine(one, reduction, [initial[position]], [value])[0]
                stored = nest.accesses[access].element_type
                value = one.rounded(value, stored)
                if self.checks is not None:
                    self.checks.sum(order, one, value, stored, None)
                one.store(value, addresses[access], stored)
                position += 1

    def _line(self, addresses: Addresses) -> None:
        """Emits one loop over all rows; an iteration computes whole vectors and whole periods of repeated rows.

        Each vector of an iteration has accumulators of its own for columns that are reduced.
        """
        builder, nest, width = self.builder, self.nest, self.lanes.width
        repeated, each = nest.period // gcd(nest.period, width), len(nest.reductions)
        short = not each or interleaving.is_short(nest) or interleaving.rounds_often(nest)
        together = interleaving.vectors_together(nest)[0] if short else 1
        count = repeated * -(-together // repeated)
        first, last = (builder.mul(row, word(nest.period)) for row in self.ranges[0])
        splats = self._invariants(addresses)
        columns = (repeated_rows(self.lanes, nest, addresses, n * width % nest.period) for n in range(repeated))
        ready = [self._invariants(addresses, splats | each) for each in columns]
        whole = builder.sub(last, builder.srem(builder.sub(last, first), word(count * width)))

        def point(index: ir.Value, number: int, mask: ir.Value | None) -> Point:
            at = self._along(addresses, builder.add(index, word(number * width)))
            return self._point(at, mask, ready[number % repeated])

        def several(index: ir.Value, held: Carried) -> Carried:
            points = [point(index, number, None) for number in range(count)]
            if each or interleaving.has_long_chains(nest):
                interleaving.evaluate_together(points, self._results(), self.alternates)
            return self._combine_points(points, held, None)

        def rest(index: ir.Value, held: Carried) -> Carried:
            after: Carried = []
            for number in range(repeated):
                left = builder.sub(last, builder.add(index, word(number * width)))
                own = held[number * each : (number + 1) * each]
                after += if_less(builder, word(0), left, own, partial(masked, index, number, self.lanes.first(left)))
            return after

        def masked(index: ir.Value, number: int, mask: ir.Value, held: Carried) -> Carried:
            return self._combine_point(point(index, number, mask), held, mask)

        held = counted_loop(builder, first, whole, count * width, self._neutral_accumulators() * count, several)
        held = counted_loop(builder, whole, last, repeated * width, self._folded(held, repeated), rest)
        self._store_line(addresses, [held[number::each] for number in range(each)])

    def _folded(self, held: Carried, kept: int) -> Carried:
        """Combines the accumulators of vectors side by side into those of the first `kept` vectors."""
        reductions, kept = self.nest.reductions, kept * len(self.nest.reductions)
        for number in range(kept, len(held)):
            into, reduction = number % kept, reductions[number % len(reductions)]
            held[into : into + 1] = combine(self.lanes, reduction, [held[into]], [held[number]])
        return held[:kept]

    def _store_line(self, addresses: Addresses, held: list[Carried]) -> None:
        """Combines the rows that each reduction has in its vectors, one after the other, and stores the columns."""
        nest, width = self.nest, self.lanes.width
        folded = [
            folded_rows(self.lanes, each, own, nest.period) for each, own in zip(nest.reductions, held, strict=True)
        ]
        for number, columns in enumerate(zip(*folded, strict=True)):
            at = self._moved(addresses, nest.rank - 1, word(number * width))
            left, values = nest.period - number * width, list(columns)
            if not nest.splits_reduction:
                of_columns = zip(nest.reductions, self._initial(at, self.lanes), columns, strict=True)
                values = [combine(self.lanes, each, [first], [value])[0] for each, first, value in of_columns]
            self._store_columns(at, self.lanes.first(word(left)) if left < width else None, values)

    def _columns(self, addresses: Addresses) -> None:
        """Emits the code for a parallel last dimension, where each lane has its own accumulators."""
        if self.nest.reductions:
            self._reduced_columns(addresses)
            return
        ready, width = self._invariants(addresses), self.lanes.width
        chains = width > 1 and self.checks is None and interleaving.has_long_chains(self.nest)

        def leaf(index: ir.Value, count: int, mask: ir.Value | None, _: Carried) -> Carried:
            indices = [self.builder.add(index, word(number * width)) for number in range(count)]
            points = [self._point(self._along(addresses, each), mask, ready) for each in indices]
            if count > 1:
                interleaving.evaluate_together(points, self._results(), self.alternates)
            for point in points:
                self._store_points(point)
                if self.checks is not None:
                    self.checks.point(point)
            return []

        together = interleaving.vectors_together(self.nest) if chains else ()
        lane_loop(self.lanes, *self.ranges[-1], self.mask, [], leaf, together)

    def _reduced_columns(self, addresses: Addresses) -> None:
        """Reduces columns in the order that suits the length of the rows."""
        if not self._may_follow_rows():
            self._columns_side_by_side(addresses)
            return
        start, stop = self.ranges[-1]
        is_long = self.builder.icmp_signed(">=", self.builder.sub(stop, start), word(LONG_ROW))
        with self.builder.if_else(is_long) as (then, otherwise):
            with then:
                self._row_by_row(addresses)
            with otherwise:
                self._columns_side_by_side(addresses)

    def _may_follow_rows(self) -> bool:
        """Whether accumulators may be in memory: of stored elements' type, without checks, and rows are written, too.

        AVX-512 reads runs of 256 bytes in either order: on a Xeon sums in memory took 1.4 times as long in the cache.
        """
        nest = self.nest
        exact = all(
            isinstance(each.combine, str)
            and self.neighbours[each.accesses[0]]
            and nest.accesses[each.accesses[0]].element_type == each.element_types[0] not in HALF_TYPES
            for each in nest.reductions
        )
        written = bool(nest.stores and self.reduced) and self.checks is None
        return exact and written and 1 < self.lanes.width < 16 and interleaving.is_short(nest)

    def _row_by_row(self, addresses: Addresses) -> None:
        """Reads and writes whole rows, which processors prefetch, and adds them to the results in memory, in order."""
        builder, nest, lanes = self.builder, self.nest, self.lanes
        sums = {each.accesses[0]: each.element_types[0] for each in nest.reductions}

        def begin(index: ir.Value, count: int, mask: ir.Value | None, _: Carried) -> Carried:
            at = self._along(addresses, index)
            self._store_columns(
                at, mask, self._neutral_accumulators() if nest.splits_reduction else self._initial(at, lanes)
            )
            return []

        def block(start: ir.Value, _: Carried) -> Carried:
            stop, end = builder.add(start, word(BLOCK)), self.ranges[-1][1]
            columns = start, builder.select(builder.icmp_signed("<", stop, end), stop, end)
            lane_loop(lanes, *columns, self.mask, [], begin)

            def rows(together: list[Addresses]) -> Carried:
                ready = [self._invariants(row) for row in together]

                def add(index: ir.Value, count: int, mask: ir.Value | None, _: Carried) -> Carried:
                    at = [self._along(row, index) for row in together]
                    points = [self._point(each, mask, own) for each, own in zip(at, ready, strict=True)]
                    interleaving.evaluate_together(points, self._results(), self.alternates)
                    held = [lanes.load(at[0][each], kind, mask) for each, kind in sums.items()]
                    self._store_columns(at[0], mask, self._combine_points(points, held, None))
                    return []

                return lane_loop(lanes, *columns, self.mask, [], add)

            self._rows_together(addresses, rows)
            return []

        counted_loop(builder, *self.ranges[-1], BLOCK, [], block)

    def _rows_together(self, addresses: Addresses, rows: Callable[[list[Addresses]], Carried]) -> None:
        """Loops over rows, the reduced dimensions: several of them together, then one at a time."""
        builder, (row,) = self.builder, self.reduced[-1]

        def inner(moved: Addresses, _: Carried) -> Carried:
            start, stop = self.ranges[row]
            for count in (SIDE_BY_SIDE, 1):
                end = builder.add(start, builder.and_(builder.sub(stop, start), word(-count)))

                def several(index: ir.Value, _: Carried, count: int = count) -> Carried:
                    return rows([self._moved(moved, row, builder.add(index, word(n))) for n in range(count)])

                counted_loop(builder, start, end, count, [], several)
                start = end
            return []

        self._loops(self.reduced[:-1], addresses, [], inner)

    def _columns_side_by_side(self, addresses: Addresses) -> None:
        """Reduces several vectors of columns side by side, so that rows are read in long runs; then one at a time."""
        builder, nest = self.builder, self.nest

        def vectors(index: ir.Value, count: int, mask: ir.Value | None, _: Carried) -> Carried:
            at = [
                [
                    builder.add(a, builder.mul(builder.add(index, word(vector * self.lanes.width)), s))
                    for a, s in zip(addresses, self.steps, strict=True)
                ]
                for vector in range(count)
            ]
            neutral = nest.splits_reduction
            first = [self._neutral_accumulators() if neutral else self._initial(a, self.lanes) for a in at]
            each = len(first[0])

            def leaf(moved: Addresses, held: Carried) -> Carried:
                parts = [moved[v * len(addresses) : (v + 1) * len(addresses)] for v in range(count)]
                points = [self._point(own, mask) for own in parts]
                interleaving.evaluate_together(points, self._results(), self.alternates)
                return self._combine_points(points, held, None)

            held = self._loops(self.reduced, [x for a in at for x in a], [x for h in first for x in h], leaf)
            for vector in range(count):
                self._store_columns(at[vector], mask, held[vector * each : (vector + 1) * each])
            return []

        together = (SIDE_BY_SIDE,) if interleaving.is_short(nest) and self.lanes.width > 1 else ()
        lane_loop(self.lanes, *self.ranges[-1], self.mask, [], vectors, together)
