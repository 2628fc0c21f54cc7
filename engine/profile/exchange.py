"""Bytes that a tile must receive before a compute set: operands that are on other tiles."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import prod

from engine.frozen import frozen
from engine.ir.shape import Shape
from engine.profile.library_types import Islands, exponential_sums
from engine.profile.loops import states_in_place
from engine.profile.mapping import Spread
from engine.profile.random_numbers import generators
from engine.profile.vertices import buffers_of, inputs_of
from engine.program.nest import Apply
from engine.program.program import Buffer, ComputeSet, Span
from engine.program.work.contraction import Contraction
from engine.program.work.convolution import Convolution
from engine.program.work.copy import TransposeWork
from engine.program.work.fused_loop import FusedLoop, Strided
from engine.program.work.indexing import Counted, SliceWork
from engine.program.work.select_and_scatter import SelectAndScatterWork
from engine.target import Target


class Layouts:
    """The homes of the arrays of a program: an array is spread in row-major order, except as follows.

    A variable that a matrix product reads has its home on the tiles chosen by the plan of the first such product, as
    in Poplar (createMatMulInputRHS, createWeights), and so have its copy in another precision and the state of a loop
    that stands for it; its gradient is exchanged to these tiles to update it. A table whose rows are looked up first
    has the layout of look-ups.
    """

    def __init__(self, compute_sets: list[ComputeSet]) -> None:
        self._homes: dict[Buffer, ComputeSet] = {}
        self.arranged: set[Buffer] = set()
        """Variables, and what stands for them, in the order in which the matrix engine reads them."""
        self._tables: set[Buffer] = set()
        self.narrowed = Islands(compute_sets).narrowed()
        self.library = replace(
            generators(compute_sets),
            halves=self.narrowed.terms,
            exponential_sums=exponential_sums(compute_sets),
        )
        self.parts: dict[Buffer, int] = {}
        """The number of partial sums of each product or sum that the program splits. A chip's plan has its own."""
        for each in compute_sets:
            self._note_parts(each)
        stands: dict[Buffer, Buffer] = states_in_place(compute_sets)
        for compute_set in compute_sets:
            variables = {span.buffer: stands.get(span.buffer, span.buffer) for span in compute_set.reads}
            if compute_set.work_estimate.lookups:
                self._tables |= {b for pair in variables.items() if pair[1].kind == "variable" for b in pair}
            if is_cast(compute_set):
                stands[compute_set.writes[0].buffer] = variables[compute_set.reads[0].buffer]
            for buffer, variable in variables.items() if compute_set.work_estimate.multiply_adds else ():
                if variable.kind == "variable" and variable not in self._tables:
                    self.arranged |= {variable, buffer} if _arranges(compute_set) else set()
                    self._homes.setdefault(variable, compute_set)
                    self._homes.setdefault(buffer, compute_set)

    def is_home(self, buffer: Buffer, compute_set: ComputeSet) -> bool:
        """Whether a compute set has the plan that decides on the tiles of a variable: that of its first product."""
        home = self._homes.get(buffer)
        if home is None or home is compute_set:
            return home is compute_set
        planned = _planned_as(compute_set)
        equal = planned is not None and planned == _planned_as(home)
        return equal and _operand(home, buffer) == _operand(compute_set, buffer)

    def is_arranged(self, buffer: Buffer, compute_set: ComputeSet) -> bool | None:
        """Whether a product finds a variable in its engine's order: that of the first product is by its terms.

        None for arrays that are stored in their own order.
        """
        home = self._homes.get(buffer)
        if home is None or buffer not in self.arranged:
            return None
        return _steps_of_terms(home, buffer) == _steps_of_terms(compute_set, buffer)

    def is_table(self, buffer: Buffer) -> bool:
        """Whether a variable has the layout of look-ups of its rows."""
        return buffer in self._tables

    def _note_parts(self, compute_set: ComputeSet) -> None:
        work = compute_set.work
        if isinstance(work, Contraction) and work.splits > 1:
            self.parts[compute_set.writes[0].buffer] = work.splits
        elif isinstance(work, FusedLoop) and work.nest.splits_reduction:
            made = buffers_of(compute_set, work)
            self.parts |= {made[r.accesses[0]]: compute_set.units for r in work.nest.reductions}

    def adds_parts(self, compute_set: ComputeSet) -> bool:
        """Whether a compute set does nothing but add partial sums, of a product or of a sum."""
        loop = compute_set.work
        if not isinstance(loop, FusedLoop) or any(isinstance(node, Apply) for node in loop.nest.nodes):
            return False
        arrays = [span.buffer for span in compute_set.reads if span.buffer.shape.elements > 1]
        return bool(loop.nest.reductions and arrays) and all(buffer in self.parts for buffer in arrays)

    def updates_home(self, span: Span, compute_set: ComputeSet) -> bool:
        """Whether a span is a gradient that must be exchanged to the tiles of the variable it updates."""
        updated = {s.buffer.shape.elements for s in compute_set.writes if s.buffer in self.arranged}
        return span.buffer.kind == "arena" and span.buffer.shape.elements in updated

    def is_everywhere(self, buffer: Buffer) -> bool:
        """Whether no tile ever receives an array: a scalar constant, a queue of the host."""
        return buffer.kind == "queue" or (buffer.kind == "constant" and buffer.shape.elements == 1)

    def known_of(self, compute_set: ComputeSet) -> Hashable:
        """Facts about its arrays that decide a compute set's cost: copies of it with equal facts have equal costs."""
        random, sums = self.library.random, self.library.exponential_sums
        reads = (
            (self.is_home(b, compute_set), self.is_table(b), b.kind, b in random, b in sums)
            for b in (span.buffer for span in compute_set.reads)
        )
        writes = ((b in self._homes, b.permanent, b.kind) for b in (span.buffer for span in compute_set.writes))
        known = (compute_set in self.library.keys, compute_set in self.library.drawn)
        return tuple(reads), tuple(writes), known, self.library.halves.get(compute_set)


def _planned_as(compute_set: ComputeSet) -> Hashable:
    """Facts that decide on the plan of a product beside its options: equal plans have a variable on equal tiles."""
    work, estimated = compute_set.work, compute_set.work_estimate
    if isinstance(work, Convolution):
        # The gradient of an input reads the kernel with features exchanged and taps reversed.
        planned: Hashable = (work.parts, work.numbers, tuple(work.window))
    elif isinstance(work, Contraction):
        planned = (estimated.product or work.size, work.transposed)
    else:
        planned = estimated.product
    return None if planned is None else (planned, estimated.element_type, estimated.partials_type)


def _operand(compute_set: ComputeSet, buffer: Buffer) -> int:
    return next((at for at, span in enumerate(compute_set.reads) if span.buffer is buffer), -1)


def _steps_of_terms(compute_set: ComputeSet, buffer: Buffer) -> int:
    """The elements of an operand from one term of a product, or input feature of a convolution, to the next."""
    work, at = compute_set.work, _operand(compute_set, buffer)
    if isinstance(work, Contraction):
        terms = (work.k_a, work.k_b)[at].table
        return int(terms[1] - terms[0]) // (work.item_bytes, work.bytes_of_b)[at] if len(terms) > 1 else 1
    if isinstance(work, Convolution):
        numbers = work.numbers
        dimension = (numbers.input_feature_dimension, numbers.kernel_input_feature_dimension)[at]
        return (work.strides_a, work.strides_b)[at][dimension] // work.shape_c.dtype.itemsize
    return 1


def _arranges(compute_set: ComputeSet) -> bool:
    """Whether a product wants its operands in an order of its own: not that of a matrix and a vector.

    Graphcore's TensorFlow multiplies these element by element (IPUConfig's optimizations.math.dot_strength).
    """
    work = compute_set.work
    size = compute_set.work_estimate.product or (work.size if isinstance(work, Contraction) else None)
    return size is None or min(size[1:3]) > 1


def is_cast(compute_set: ComputeSet) -> bool:
    """Whether a compute set does nothing but convert an array to another type."""
    loop, arrays = compute_set.work, (len(compute_set.reads), len(compute_set.writes))
    if arrays != (1, 1) or not isinstance(loop, FusedLoop) or loop.nest.reductions:
        return False
    applied = [node.operation.opcode for node in loop.nest.nodes if isinstance(node, Apply)]
    return applied == ["convert"]


@frozen
class PointOrder:
    """The loops of a compute set in the order in which its points go to tiles: that of its largest array in memory.

    `extents` are those of the loops, outermost first; `reduced` says which of them are summed over. `reads` has the
    strides of each array that is read, with its span. `item_bytes` are those of the largest array's elements.
    """

    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    reads: tuple[tuple[Span, tuple[int, ...]], ...]
    item_bytes: int
    windows: bool = False

    def periods(self) -> set[int]:
        """The points of inner loops: with so many a tile has whole rows, or whole matrices, of the outer loops."""
        return {prod(self.extents[at:]) for at in range(len(self.extents))}

    def parts(self, per_tile: int) -> int:
        """The number of tiles that have terms of the same sum."""
        parts, points = 1, per_tile
        for extent, reduced in zip(reversed(self.extents), reversed(self.reduced), strict=True):
            taken = max(1, min(extent, points))
            parts *= -(-extent // taken) if reduced else 1
            points //= taken
        return parts


def point_order(compute_set: ComputeSet) -> PointOrder | None:
    """The loops of a fused loop or of a transpose; None for other work."""
    work = compute_set.work
    if isinstance(work, TransposeWork):
        loops = [*work.matrices, (work.columns, 4, work.target_pitch), (work.rows, work.source_pitch, 4)]
        loops.sort(key=lambda loop: -abs(loop[2]))
        extents, strides, _ = zip(*loops, strict=True)
        return PointOrder(extents, (False,) * len(loops), ((compute_set.reads[0], strides),), 4)
    if not isinstance(work, FusedLoop):
        return None
    operands = [(number, each) for number, each in enumerate(work.operands) if isinstance(each, Strided)]
    stored = {store.access for store in work.nest.stores}
    order, item = list(range(len(work.extents))), 4
    if operands:
        # Of equally large arrays, a stored one: tiles compute the elements that they are to have.
        number, largest = max(operands, key=lambda o: (_covered(work, o[1]), o[0] in stored))
        order.sort(key=lambda d: (not largest.strides[d], -abs(largest.strides[d])))
        item = Shape(work.nest.accesses[number].element_type).dtype.itemsize
    reads = tuple(
        (span, tuple(work.operands[number].strides[d] for d in order))
        for number, span in inputs_of(compute_set, work).items()
    )
    extents, reduced = tuple(work.extents[d] for d in order), tuple(work.nest.reduced[d] for d in order)
    return PointOrder(extents, reduced, reads, item, bool(compute_set.work_estimate.windows))


def _covered(loop: FusedLoop, operand: Strided) -> int:
    """Elements of an array that a loop accesses."""
    return prod(extent for extent, stride in zip(loop.extents, operand.strides, strict=True) if stride)


def received_bytes(compute_set: ComputeSet, run: Spread, layouts: Layouts) -> int:
    """Bytes that each tile receives for its points of a compute set that is not a matrix product.

    The units of this processor do not matter, except to other work than loops, slices and gradients of pooling, where
    they say what is accessed at all.
    """
    order = point_order(compute_set)
    if order is None:
        moved = [span.buffer.shape.bytes for span in _moved_spans(compute_set, layouts)]
        if slices_by_counter(compute_set):
            # Each tile has its columns of all rows, so the row of any iteration moves alone.
            moved = [min(size, compute_set.writes[0].buffer.shape.bytes) for size in moved]
        return sum(-(-size // max(1, run.tiles)) for size in moved)
    total = 0
    for span, strides in order.reads:
        if _is_elsewhere(order, span, strides, run, layouts) or layouts.updates_home(span, compute_set):
            shape = span.buffer.shape
            touched = footprint(run.per_tile, list(order.extents), [stride != 0 for stride in strides])
            total += min(touched, shape.elements) * shape.dtype.itemsize
    return total


def _moved_spans(compute_set: ComputeSet, layouts: Layouts) -> list[Span]:
    """The arrays of which tiles receive parts, for work that is no fused loop or transpose.

    Gradients of pooling have windows in the order of their arrays, as other windows do. A slice at a loop's counter
    receives its row, unless the host sends it; an update there is computed on the tiles that are to have it.
    """
    work, spans = compute_set.work, [s for s in compute_set.reads if not layouts.is_everywhere(s.buffer)]
    streamed = any(span.buffer.kind == "feed" for span in spans)
    if isinstance(work, SelectAndScatterWork):
        return []
    if isinstance(work, SliceWork):
        return [] if _starts_by_counter(work) and (work.into_array or streamed) else spans
    return [span for span in spans if span.partition is None]


def _is_elsewhere(order: PointOrder, span: Span, strides: Sequence[int], run: Spread, layouts: Layouts) -> bool:
    """Whether a tile receives elements of an array: the mean of a row that is on several tiles, a part of a matrix.

    A variable that is broadcast is on tiles of its own. Windows overlap in the order of their array.
    """
    strided = [(extent, abs(stride)) for extent, stride in zip(order.extents, strides, strict=True) if extent > 1]
    extents, steps = [extent for extent, _ in strided], [stride for _, stride in strided]
    if layouts.is_everywhere(span.buffer) or (order.windows and all(steps)):
        return False
    if not all(steps) and span.buffer.kind in ("feed", "variable"):
        return True
    other = (at for at, stride in enumerate(steps) if not stride or stride < max(steps[at:]))
    first = next(other, len(steps))
    if prod(extents[first:]) <= run.per_tile:
        return False
    if not all(steps):
        return True
    # Tiles with parts of inner loops in the array's own order have these wherever the outer loops put them.
    last = max(at for at, stride in enumerate(steps) if stride < max(steps[at:]))
    inner = next(at for at in range(last + 1, len(steps) + 1) if max(steps[at:], default=0) < min(steps[:at]))
    return prod(extents[inner:]) < run.per_tile


def slices_by_counter(compute_set: ComputeSet) -> bool:
    """Whether a compute set is a dynamic slice, or an update of one, that starts where the loop's counter says.

    Rows of feeds are streams: the host sends the row of each iteration.
    """
    work = compute_set.work
    if not isinstance(work, SliceWork) or any(span.buffer.kind == "feed" for span in compute_set.reads):
        return False
    return _starts_by_counter(work)


def _starts_by_counter(work: SliceWork) -> bool:
    if not work.starts:
        return work.array.address.moved is not None
    return any(isinstance(start, Counted) and start.growth for start in work.starts)


def footprint(points: int, extents: list[int], moves: list[bool]) -> int:
    """Elements of an array that `points` consecutive points of a loop nest access.

    `moves` says for each loop, outermost first, whether the array has a stride along it.
    """
    elements, most = 1, points
    for extent, moving in zip(reversed(extents), reversed(moves), strict=True):
        taken = max(1, min(extent, points))
        elements *= taken if moving else 1
        points = -(-points // taken)
    return min(elements, most)


def exchange_cycles(received: int, target: Target) -> int:
    """Cycles of an exchange of `received` bytes per tile: start-up and transfer, or 0 for no bytes."""
    if received <= 0:
        return 0
    return target.exchange_start_cycles + -(-received // target.exchange_bytes_per_cycle)
