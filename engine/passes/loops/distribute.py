"""Moves out of loops the work that iterations need not wait for: it runs for all at once, before or after the loop.

Three things move: products of values from before the loop (an LSTM's input, times its weights), lists into which such
values are pushed, and sums over the iterations (gradients of weights), for which the loop then only stores operands.
"""

from __future__ import annotations

from math import prod

from engine.ir import Instruction, Module, Shape, topological
from engine.ir.opcodes import AFFINE, CONTRACTIONS
from engine.ir.trip_counts import TripCounts
from engine.passes import construct
from engine.passes.loops.batching import Operand, can_batch, spread, summed
from engine.passes.loops.iterations import Iterations
from engine.passes.loops.rebuilding import element_of, parameter_of, tuple_of
from engine.passes.loops.view import LoopView, element_read, remade
from engine.passes.rewriting import make, rewrite

MOST_BYTES = 128 * 2**20
"""Most bytes that may be stored of one value for all iterations."""
FAR_BYTES = 8 * 2**20
"""Bytes of a value for all iterations that no worker's own cache holds: storing and re-reading it then takes as long as
computing products of many rows."""
MANY_ROWS, SHORT_K = 128, 256
"""The least rows and the largest k of a product that is as fast alone as together with others."""
INDEX = Shape("s32", ())
KEEPS_ITS_WORK = "keeps_its_work"
"""The attribute of loops that exist to save memory: no value of theirs is stored for all iterations."""


def distribute_loops(module: Module) -> Module:
    """The module with work moved out of loops that have flat states and a known number of iterations."""
    counts = TripCounts(module)

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if instruction.opcode != "while" or instruction.get(KEEPS_ITS_WORK):
            return None
        view, iterations = LoopView.of(instruction), counts.iterations(instruction)
        if view is None or iterations is None or iterations < 2:
            return None
        return _Distribution(Iterations(view, counts, iterations)).run()

    return rewrite(module, visit)


class _Distribution:
    """The distribution of one loop."""

    def __init__(self, iterations: Iterations) -> None:
        self.iterations = iterations
        self.view = iterations.view
        self.early = iterations.outside({})
        tested = {element_read(i) for i in topological([self.view.condition.root])}
        self.free = [k for k in range(len(self.view.following)) if k not in tested and not self.view.is_invariant(k)]
        self.lists = {k: v for k in self.free if (v := self._pushed(k)) is not None and v in self.early}
        self.listed = set(topological(list(self.lists.values())))
        self.sums = {k: v for k in self.free if (v := self._added(k)) is not None}
        self.stored: dict[Instruction, None] = {}

    def run(self) -> Instruction | None:
        """The smaller loop's results and the moved ones, as a tuple of the old shape; None if nothing can move."""
        self._choose_sums()
        hoisted = self._hoisted()
        if not (self.lists or self.sums or hoisted):
            return None
        view, number = self.view, self.iterations.number
        kept = [k for k in range(len(view.following)) if k not in self.lists and k not in self.sums]
        before = [self.early[i][0] for i in hoisted] + [self._empty(i) for i in self.stored]
        slot = next((k for k in kept if self.iterations.counts.line(view.loop, k) == self.iterations.order), None)
        if slot is None:
            before.append(construct.constant(view.loop, self.iterations.order[0], INDEX))
        shapes = [view.initial[k].shape for k in kept] + [each.shape for each in before]
        parameter = parameter_of(view.body.parameters[0].name, shapes)
        reads = [element_of(parameter, len(kept) + k) for k in range(len(before))]
        if slot is None:
            index = reads[-1]
            step = construct.constant(index, self.iterations.order[1], INDEX)
            moved = [construct.elementwise(index, "add", index, step)]
        else:
            index, moved = element_of(parameter, kept.index(slot)), []
        taken = {i: self._take(i, read, index) for i, read in zip(hoisted, reads, strict=False)}
        stores = [self._store(i, read, index) for i, read in zip(self.stored, reads[len(hoisted) :], strict=False)]
        after = [*reads[: len(hoisted)], *stores, *moved]
        loop = remade(view, kept, {}, list(zip(before, after, strict=True)), taken, parameter)
        sources = {i: element_of(loop, len(kept) + len(hoisted) + k) for k, i in enumerate(self.stored)}
        known = self.iterations.outside(sources)
        results = []
        for k, initial in enumerate(view.initial):
            if k in self.lists:
                results.append(self._list(k, known[self.lists[k]]))
            elif k in self.sums:
                total = summed(self.sums[k], known, number)
                results.append(construct.elementwise(view.following[k], "add", initial, total))
            else:
                results.append(element_of(loop, kept.index(k)))
        return tuple_of(f"{view.loop.name}.results", results)

    def _pushed(self, element: int) -> Instruction | None:
        """The row that each iteration writes to an element, if rows cover all of it and the body never reads it."""
        update = self.view.following[element]
        if update.opcode != "dynamic-update-slice" or element_read(update.operands[0]) != element:
            return None
        row, dimensions = update.operands[1], update.array_shape.dimensions
        whole = (
            dimensions
            and dimensions[0] == self.iterations.number
            and row.array_shape.dimensions == (1, *dimensions[1:])
        )
        if not whole or self.view.readers(element) != [update] or not self._only_for(element, update):
            return None
        line = self.iterations.line(update.operands[2])
        return row if line in ((0, 1), (self.iterations.number - 1, -1)) else None

    def _added(self, element: int) -> Instruction | None:
        """The term that each iteration adds to an element that the body does not read otherwise."""
        total = self.view.following[element]
        if total.opcode != "add" or total.array_shape.dtype.kind not in "fV" or self.view.readers(element) != [total]:
            return None
        terms = [o for o in total.operands if element_read(o) != element]
        return terms[0] if len(terms) == 1 and self._only_for(element, total) else None

    def _only_for(self, element: int, following: Instruction) -> bool:
        """Whether a new value's only reader is the state's element."""
        body = self.view.body
        readers = [i for i in body.instructions if following in i.operands and i is not body.root]
        return not readers and sum(each is following for each in self.view.following) == 1

    def _choose_sums(self) -> None:
        """Keeps the sums that pay off, and records the values that the loop has to store for them."""
        while True:
            core = self._core()
            chosen, self.stored = {}, {}
            for k, term in self.sums.items():
                stored = self._frontier(term, core)
                if stored is not None:
                    chosen[k] = term
                    self.stored.update(dict.fromkeys(stored))
            if len(chosen) == len(self.sums):
                return
            self.sums = chosen

    def _core(self) -> set[Instruction]:
        """The instructions that the loop computes whether or not sums are moved."""
        left = [f for k, f in enumerate(self.view.following) if k not in self.lists and k not in self.sums]
        return set(topological(left))

    def _frontier(self, term: Instruction, core: set[Instruction]) -> list[Instruction] | None:
        """The values each iteration must store so that a term can be computed later; None if that does not pay off."""
        stored: list[Instruction] = []
        pending, seen, worth = [term], {term}, False
        while pending:
            instruction = pending.pop()
            if instruction in self.early:
                continue
            if instruction in core or not can_batch(instruction):
                stored.append(instruction)
                continue
            worth = worth or instruction.opcode in CONTRACTIONS or instruction.opcode == "reduce"
            pending += [o for o in instruction.operands if o not in seen]
            seen.update(instruction.operands)
        arrays = all(isinstance(i.shape, Shape) for i in stored)
        if not worth or not arrays or any(not self._fits(i) for i in stored):
            return None
        return stored

    def _fits(self, instruction: Instruction) -> bool:
        return self.iterations.number * instruction.array_shape.bytes <= MOST_BYTES

    def _hoisted(self) -> list[Instruction]:
        """Instructions to compute before the loop: the last that do not depend on it, if they do costly work."""
        left = [f for k, f in enumerate(self.view.following) if k not in self.lists and k not in self.sums]
        pending: list[Instruction] = [*left, *self.stored]
        seen = set(pending)
        hoisted: dict[Instruction, None] = {}
        while pending:
            instruction = pending.pop()
            if self._is_worth_hoisting(instruction):
                hoisted[instruction] = None
                continue
            pending += [o for o in instruction.operands if o not in seen]
            seen.update(instruction.operands)
        return list(hoisted)

    def _is_worth_hoisting(self, instruction: Instruction) -> bool:
        if instruction not in self.early or instruction not in self.iterations.costly or instruction.opcode in AFFINE:
            return False
        if not isinstance(instruction.shape, Shape):  # the state of a loop is flat: each result moves by itself
            return False
        _, batched = self.early[instruction]
        return not batched or (self._fits(instruction) and not self._stays_for_the_cache(instruction))

    def _stays_for_the_cache(self, instruction: Instruction) -> bool:
        """Whether the costly work is products that run near the peak within an iteration, with results in the cache."""
        if self.iterations.number * instruction.array_shape.bytes <= FAR_BYTES or instruction in self.listed:
            return False
        costly = [i for i in topological([instruction]) if i in self.early and i.opcode in CONTRACTIONS]
        return all(_has_many_rows(each) for each in costly if self.early[each][1])

    def _empty(self, instruction: Instruction) -> Instruction:
        """The array that receives an instruction's values of all iterations."""
        shape = instruction.array_shape
        shape = shape.with_dimensions((self.iterations.number, *shape.dimensions))
        return construct.splat_of(instruction, 0, shape)

    def _take(self, instruction: Instruction, read: Instruction, index: Instruction) -> Instruction:
        """The slice for this iteration of a value computed before the loop, or the value itself if it is invariant."""
        if not self.early[instruction][1]:
            return read
        dimensions = instruction.array_shape.dimensions
        shape = instruction.array_shape.with_dimensions((1, *dimensions))
        operands = (read, index, *self._zeros(index, len(dimensions)))
        row = make(instruction, "dynamic-slice", shape, operands, dynamic_slice_sizes=shape.dimensions)
        return construct.reshape(instruction, row, dimensions)

    def _store(self, instruction: Instruction, read: Instruction, index: Instruction) -> Instruction:
        dimensions = instruction.array_shape.dimensions
        row = construct.reshape(instruction, instruction, (1, *dimensions))
        operands = (read, row, index, *self._zeros(index, len(dimensions)))
        return make(instruction, "dynamic-update-slice", read.shape, operands)

    @staticmethod
    def _zeros(index: Instruction, count: int) -> list[Instruction]:
        return [construct.constant(index, 0, index.array_shape)] * count

    def _list(self, element: int, row: Operand) -> Instruction:
        """A list all of whose rows are known, in its own order."""
        update = self.view.following[element]
        dimensions = update.array_shape.dimensions
        if not row[1]:  # all rows are equal
            one = construct.reshape(update, row[0], dimensions[1:])
            return spread((one, False), self.iterations.number)
        rows = construct.reshape(update, row[0], dimensions)
        line = self.iterations.line(update.operands[2])
        assert line is not None
        return self.iterations.in_order(rows, line)


def _has_many_rows(product: Instruction) -> bool:
    """Whether a product is of matrices, with so many rows that joining several products is no faster."""
    if product.opcode != "dot" or product.array_shape.rank != 2:
        return False
    left, numbers = product.operands[0].array_shape, product["dot_dimension_numbers"]
    k = prod(left.dimensions[each] for each in numbers.lhs_contracting_dimensions)
    return product.array_shape.dimensions[0] >= MANY_ROWS and k <= SHORT_K
