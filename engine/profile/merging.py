"""Supersteps that the options of a cost report merge: infeeds, look-ups, products, reductions.

A program keeps its compute sets. The first of a merged group has the cost of all, the others cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from engine.profile.exchange import Layouts
from engine.profile.families import lookup_of
from engine.profile.options import Assumptions
from engine.profile.plan import best_plan
from engine.profile.slices import plan_lookup
from engine.profile.streams import FROM_HOST
from engine.profile.superstep import lookup_at_home, options_of, product_of
from engine.profile.superstep_cost import SuperstepCost
from engine.program.program import Buffer, ComputeSet, Program
from engine.program.work.convolution import Convolution
from engine.program.work.fused_loop import FusedLoop
from engine.target import Target

FREE = SuperstepCost(0, 0, 0, 0, 0)
Group = list[int]


def merge_supersteps(
    program: Program,
    steps: Sequence[SuperstepCost],
    layouts: Layouts,
    target: Target,
    assumptions: Assumptions,
    planning: Sequence[Assumptions] | None = None,
) -> list[SuperstepCost]:
    """Merge supersteps of a program as `assumptions.optimizations` say.

    `planning` has the options of each compute set. Only compute sets with the same object may be merged.
    """
    options, planned = assumptions.optimizations, planning or [assumptions] * len(steps)
    merger = _Merger(program, list(steps), layouts, target, planned)
    if options.merge_infeeds:
        merger.merge_infeeds()
    if options.combine_lookups:
        merger.combine(_table_of, merger.one_lookup)
    if options.combine_products:
        merger.combine(merger.operand_of(0), merger.one_product)
        merger.combine(merger.operand_of(1), merger.one_product)
    if options.reduce_many_bytes:
        merger.combine(_reduction_of, merger.reductions, options.reduce_many_bytes)
    return merger.steps


class _Merger:
    def __init__(
        self,
        program: Program,
        steps: list[SuperstepCost],
        layouts: Layouts,
        target: Target,
        planning: Sequence[Assumptions],
    ) -> None:
        self.compute_sets, self.steps = program.compute_sets, steps
        self.regions, self.layouts = program.regions, layouts
        self.target, self.planning = target, planning
        self.merged: set[int] = set()

    def merge_infeeds(self) -> None:
        """Charge one sync for consecutive copies from queues."""
        copies = [isinstance(each.work, FROM_HOST) for each in self.compute_sets]
        for at in range(1, len(copies)):
            if copies[at] and copies[at - 1]:
                self.steps[at] = replace(self.steps[at], sync=0)

    def combine(
        self,
        key_of: Callable[[ComputeSet], Hashable | None],
        together: Callable[[Group], SuperstepCost],
        most_bytes: int | None = None,
    ) -> None:
        """Merge compute sets of one key that are in the same regions and do not depend on each other."""
        found: dict[Hashable, Group] = {}
        for at, each in enumerate(self.compute_sets):
            key = None if at in self.merged else key_of(each)
            if key is not None:
                inside = tuple(number for number, r in enumerate(self.regions) if r.begin <= at < r.end)
                found.setdefault((key, inside, id(self.planning[at])), []).append(at)
        for candidates in found.values():
            for group in self._independent(candidates, most_bytes):
                if len(group) > 1:
                    self._charge(group, together(group))

    def _charge(self, group: Group, whole: SuperstepCost) -> None:
        self.merged.update(group)
        self.steps[group[0]] = whole
        for at in group[1:]:
            self.steps[at] = replace(FREE, tiles=whole.tiles)

    def _independent(self, candidates: Group, most_bytes: int | None) -> Iterator[Group]:
        """Groups of compute sets that do not depend on each other and together read at most `most_bytes` bytes."""
        left = candidates
        while left:
            first = self.compute_sets[left[0]]
            group, rest, derived, held = [left[0]], [], _written(first), _bytes_read(first)
            position = left[0]
            for at in left[1:]:
                derived |= self._derived(derived, position, at)
                position = at
                depends = any(span.buffer in derived for span in self.compute_sets[at].reads)
                size = held + _bytes_read(self.compute_sets[at])
                if depends or (most_bytes is not None and size > most_bytes):
                    rest.append(at)
                    continue
                group.append(at)
                derived |= _written(self.compute_sets[at])
                held = size
            yield group
            left = rest

    def _derived(self, derived: set[Buffer], begin: int, end: int) -> set[Buffer]:
        """The arrays that the compute sets begin <= k < end compute from those of `derived`."""
        more: set[Buffer] = set()
        for each in self.compute_sets[begin:end]:
            if any(span.buffer in derived or span.buffer in more for span in each.reads):
                more |= _written(each)
        return more

    def one_lookup(self, group: Group) -> SuperstepCost:
        """Cost of all look-ups of a group in one plan."""
        lookups = [found for at in group if (found := lookup_at_home(self.compute_sets[at], self.layouts))]
        whole = replace(lookups[0], lookups=sum(each.lookups for each in lookups))
        return plan_lookup(whole, self.target, self.planning[group[0]].slice_proportion())

    def one_product(self, group: Group) -> SuperstepCost:
        """Cost of one product of the shared operand with all rows or columns of the other operands."""
        first = self.compute_sets[group[0]]
        products = [product_of(self.compute_sets[at], self.layouts) for at in group]
        shares_a = len({self.compute_sets[at].reads[0].buffer for at in group}) == 1
        added = ("columns", "distinct_b") if shares_a else ("rows", "distinct_a")
        whole = replace(products[0], **{name: sum(getattr(p, name) for p in products) for name in added})
        options = options_of(first, self.planning[group[0]])
        return best_plan(whole.convolution, self.target, options)

    def operand_of(self, number: int) -> Callable[[ComputeSet], Hashable | None]:
        """A function that returns operand `number` of a product, with types and sizes that sharing products have."""

        def key(compute_set: ComputeSet) -> Hashable | None:
            work_estimate = compute_set.work_estimate
            if not work_estimate.multiply_adds or len(compute_set.reads) < 2:
                return None
            if isinstance(compute_set.work, Convolution):
                return None
            if not work_estimate.element_type.startswith(("f", "bf")):
                return None
            product = product_of(compute_set, self.layouts)
            kept = product.rows if number == 0 else product.columns
            types = (work_estimate.element_type, work_estimate.partials_type)
            return (compute_set.reads[number].buffer, *types, product.batches, product.k, kept)

        return key

    def reductions(self, group: Group) -> SuperstepCost:
        """Cost of a group of reductions: the work of all, the syncs of the longest, one start-up of the exchange."""
        steps = [self.steps[at] for at in group]
        exchanged = [each for each in steps if each.exchange]
        saved = max(0, len(exchanged) - 1) * self.target.exchange_start_cycles
        return SuperstepCost(
            compute=sum(each.compute for each in steps),
            exchange=sum(each.exchange for each in steps) - saved,
            sync=max(each.sync for each in steps),
            tiles=max(each.tiles for each in steps),
            temporary_bytes=sum(each.temporary_bytes for each in steps),
            received_bytes=sum(each.received_bytes for each in steps),
            method="reductions together",
        )


def _written(compute_set: ComputeSet) -> set[Buffer]:
    return {span.buffer for span in compute_set.writes}


def _bytes_read(compute_set: ComputeSet) -> int:
    return sum(span.buffer.shape.bytes for span in compute_set.reads)


def _table_of(compute_set: ComputeSet) -> Hashable | None:
    found = lookup_of(compute_set)
    return None if found is None or found.updates else (compute_set.reads[0].buffer, found.width)


def _reduction_of(compute_set: ComputeSet) -> Hashable | None:
    loop = compute_set.work
    reduces = isinstance(loop, FusedLoop) and loop.nest.reductions and not compute_set.work_estimate.multiply_adds
    return "reduction" if reduces else None
