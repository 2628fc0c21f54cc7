"""Removes elements of loop states: unused ones, ones known beforehand, and ones that another one determines.

An LSTM's last output is the state that its next iteration would read: after the loop one of the two is enough.
"""

from __future__ import annotations

import numpy as np

from engine.ir import Computation, Instruction, Module
from engine.ir.module import topological
from engine.ir.properties import has_side_effect
from engine.ir.trip_counts import TripCounts
from engine.passes import construct
from engine.passes.loops.rebuilding import element_of, parameter_of, tuple_of
from engine.passes.loops.view import LoopView, Stand, element_read, remade
from engine.passes.rewriting import Visit, rewrite_each


def prune_loop_states(module: Module) -> Module:
    """Merges equal counters, moves constants into bodies, and replaces loops' results that are known."""
    counts = TripCounts(module)

    def visit_for(computation: Computation) -> Visit:
        used = _used_results(computation)

        def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
            if instruction.opcode != "while" or before not in used:
                return None
            view = LoopView.of(instruction)
            return None if view is None else _Pruning(view, used[before], counts).run()

        return visit

    return rewrite_each(module, visit_for)


def _used_results(computation: Computation) -> dict[Instruction, set[int] | None]:
    """Maps each loop to the indices of its result's elements that are read; to None if all are."""
    used: dict[Instruction, set[int] | None] = {i: set() for i in computation.instructions if i.opcode == "while"}
    for instruction in computation.instructions:
        for operand in instruction.operands:
            read = used.get(operand)
            if instruction.opcode == "get-tuple-element" and read is not None:
                read.add(instruction["tuple_index"])
            elif operand in used:
                used[operand] = None
    if computation.root in used:
        used[computation.root] = None
    return used


class _Pruning:
    """The pruning of one loop."""

    def __init__(self, view: LoopView, used: set[int] | None, counts: TripCounts) -> None:
        self.view = view
        self.counts = counts
        self.size = len(view.following)
        self.used = set(range(self.size)) if used is None else used
        self.stands: dict[int, Stand] = {}  # elements that equal another one, or a constant, in every iteration
        self.results: dict[int, Instruction] = {}  # final values known without the loop
        self.twins: dict[int, int] = {}  # elements whose final values equal another one's, but for their shapes

    def run(self) -> Instruction | None:
        """The smaller loop's results, as a tuple of the old shape; None if no element can be removed."""
        self._find()
        kept = sorted(self._live())
        if len(kept) == self.size or not kept:
            return None
        view = self.view
        parameter = parameter_of(view.body.parameters[0].name, [view.initial[k].shape for k in kept])
        loop = remade(view, kept, self.stands, [], {}, parameter)
        index = {element: position for position, element in enumerate(kept)}
        results = []
        for k in range(self.size):
            stand = self.stands.get(k, k)
            twin = self.twins.get(k)
            if k not in self.results and stand not in index and twin in index:
                shape = view.initial[k].array_shape
                results.append(construct.reshape(view.initial[k], element_of(loop, index[twin]), shape.dimensions))
            elif k in self.results or stand not in index:
                results.append(self.results.get(k, view.initial[k]))
            else:
                results.append(element_of(loop, index[stand]))
        return tuple_of(f"{view.loop.name}.results", results)

    def _find(self) -> None:
        iterations = self.counts.iterations(self.view.loop)
        seen: dict[object, int] = {}
        for k, initial in enumerate(self.view.initial):
            if self.view.is_invariant(k):
                self.results[k] = initial
                if initial.opcode == "constant":
                    self.stands[k] = initial
                    continue
                key: object = initial
            else:
                line = self.counts.line(self.view.loop, k)
                if line is None:
                    continue
                key = (line, initial.shape)
                if iterations is not None:
                    self.results[k] = _number(initial, line[0] + line[1] * iterations)
            first = seen.setdefault(key, k)
            if first != k:
                self.stands[k] = first

    def _live(self) -> set[int]:
        """The elements read after the loop, by the condition, by a side effect or by another element that stays."""
        groups = self._alike()
        asked = [k for k in self.used if k not in self.results]
        pending = [k for k in asked if k not in groups]
        pending += self._acting()
        pending += self._needs(self.view.condition.root)
        live: set[int] = set()
        self._follow(pending, live)
        for k in asked:
            if k in groups and k not in live:
                self.twins[k] = next((each for each in groups[k] if each in live), k)
                self._follow([self.twins[k]], live)
        return live

    def _follow(self, pending: list[int], live: set[int]) -> None:
        """Adds elements to those that stay, with the elements that they are computed from."""
        while pending:
            stand = self.stands.get(pending[-1], pending[-1])
            pending.pop()
            if isinstance(stand, int) and stand not in live:
                live.add(stand)
                pending += self._needs(self.view.following[stand])

    def _alike(self) -> dict[int, list[int]]:
        """Maps elements to the group of elements to which each iteration gives the same value, in some shape."""
        if not self.counts.iterations(self.view.loop):
            return {}
        groups: dict[Instruction, list[int]] = {}
        for k, following in enumerate(self.view.following):
            while following.opcode == "reshape":
                following = following.operands[0]
            groups.setdefault(following, []).append(k)
        return {k: group for group in groups.values() if len(group) > 1 for k in group}

    def _acting(self) -> list[int]:
        """The elements, tokens among them, whose values depend on an instruction with a side effect."""
        acting: set[Instruction] = set()
        for instruction in self.view.body.instructions:
            if has_side_effect(instruction) or any(operand in acting for operand in instruction.operands):
                acting.add(instruction)
        return [k for k, following in enumerate(self.view.following) if following in acting]

    def _needs(self, root: Instruction) -> set[int]:
        found = (element_read(i) for i in topological([root]))
        return {element for element in found if element is not None}


def _number(like: Instruction, value: int) -> Instruction:
    shape = like.array_shape
    return construct.constant(like, np.full(shape.dimensions, value, shape.dtype), shape)
