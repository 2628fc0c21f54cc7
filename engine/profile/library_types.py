"""Softmax and normalisation that a program computes in fp32, and a chip's library in 16-bit floats.

Keras converts the input of such a layer to fp32 and its result back. The softmax and norms of poplibs take 16-bit
floats, keep only statistics in fp32, and multiply by an inverse where the formula divides. An island is fp32 arithmetic
connected by its values. It counts if all of its large arrays arrive and leave as 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.frozen import frozen
from engine.profile.compounds import Term, Terms
from engine.profile.vertices import HALF, before_conversions, buffers_of, terms_of
from engine.program.program import Buffer, ComputeSet
from engine.program.work.fused_loop import FusedLoop

SMALL = 16
"""Arrays with this many times fewer elements than an island's largest are parameters or statistics. Chosen by hand."""
Place = tuple[int, int] | Buffer
"""A term, as the numbers of its compute set and of itself, or an array between compute sets."""


@dataclass(slots=True)
class _Island:
    """Facts about connected fp32 arithmetic: its opcodes, the sizes of its arrays, and how they arrive and leave."""

    opcodes: set[str] = field(default_factory=set)
    combines: set[str] = field(default_factory=set)
    squares: bool = False
    rounded_quotient: bool = False
    arrives: bool = False
    leaves: bool = False
    largest: int = 0
    kept: int = 0

    def adds(self, term: Term, points: int) -> None:
        """Note an operation whose result is fp32."""
        self.opcodes.add(term.opcode)
        self.largest = max(self.largest, points)
        self.arrives |= term.opcode == "convert" and term.operand_types[0] in HALF

    @property
    def is_library(self) -> bool:
        """Whether the island is a softmax or a normalisation of 16-bit floats, with or without gradients."""
        halves = self.arrives and self.leaves and self.kept * SMALL <= self.largest
        norm = bool(self.opcodes & {"rsqrt", "sqrt"}) and self.squares and "add" in self.combines
        return halves and (norm or (self.rounded_quotient and {"maximum", "add"} <= self.combines))


@frozen
class Halves:
    """The fp32 `terms` of fused loops that a chip computes in 16-bit floats, and the fp32 `arrays` that it stores so.

    Terms are numbers of nodes, or -1 - number for a reduction.
    """

    terms: dict[ComputeSet, frozenset[int]]
    arrays: frozenset[Buffer]


class Islands:
    """The connected fp32 arithmetic of a program."""

    def __init__(self, compute_sets: Sequence[ComputeSet]) -> None:
        self.compute_sets = compute_sets
        self._leader: dict[Place, Place] = {}
        self._read = {span.buffer for each in compute_sets for span in each.reads}
        for number, each in enumerate(compute_sets):
            for places in self._connected(number, each):
                for place in places[1:]:
                    self._leader[self._find(places[0])] = self._find(place)

    def narrowed(self) -> Halves:
        """Find the terms and arrays that are fp32 in a program and 16-bit floats in a chip's library."""
        islands: dict[Place, _Island] = {}
        for number, each in enumerate(self.compute_sets):
            self._describe(number, each, islands)
        library = {leader: island for leader, island in islands.items() if island.is_library}
        found = {}
        for number, each in enumerate(self.compute_sets) if library else ():
            nodes = [at for at, place in self._nodes(number, each) if self._find(place) in library]
            if nodes:
                found[each] = frozenset(nodes)
        arrays = [place for place in self._leader if isinstance(place, Buffer) and self._find(place) in library]
        large = (each for each in arrays if each.shape.elements * SMALL > library[self._find(each)].largest)
        return Halves(found, frozenset(large))

    def _find(self, place: Place) -> Place:
        root = place
        while self._leader.get(root, root) != root:
            root = self._leader[root]
        while place != root:
            self._leader[place], place = root, self._leader.get(place, root)
        return root

    def _connected(self, number: int, compute_set: ComputeSet) -> Iterator[list[Place]]:
        """Sets of places of one compute set that values connect."""
        loop = compute_set.work
        if not isinstance(loop, FusedLoop):
            if not compute_set.work_estimate.multiply_adds:
                yield [s.buffer for s in (*compute_set.reads, *compute_set.writes) if _passes(s.buffer)]
            return
        nest, terms = loop.nest, terms_of(loop.nest)
        for at, term in enumerate(terms):
            if term.opcode and term.element_type == "f32":
                yield [(number, at), *((number, o) for o in term.operands if _is_value(terms[o]))]
        for access, buffer in buffers_of(compute_set, loop).items():
            if _passes(buffer):
                places = [at for at, term in enumerate(terms) if term.access == access]
                places += [store.node for store in nest.stores if store.access == access]
                places += [-1 - k for k, r in enumerate(nest.reductions) if access in r.accesses]
                yield [buffer, *((number, at) for at in places)]
        for k, reduction in enumerate(nest.reductions):
            yield [(number, -1 - k), *((number, at) for at in reduction.values if _is_value(terms[at]))]

    def _nodes(self, number: int, compute_set: ComputeSet) -> Iterator[tuple[int, Place]]:
        if isinstance(compute_set.work, FusedLoop):
            nest = compute_set.work.nest
            for at, term in enumerate(terms_of(nest)):
                if term.opcode and "f32" in (term.element_type, *term.operand_types):
                    yield at, (number, at if term.element_type == "f32" else term.operands[0])
            for k, reduction in enumerate(nest.reductions):
                if reduction.element_types[0] == "f32":
                    yield -1 - k, (number, -1 - k)

    def _describe(self, number: int, compute_set: ComputeSet, islands: dict[Place, _Island]) -> None:
        """Add the terms and arrays of a compute set to their islands."""

        def island(place: Place) -> _Island:
            return islands.setdefault(self._find(place), _Island())

        for span in (*compute_set.reads, *compute_set.writes):
            buffer = span.buffer
            if buffer.shape.element_type == "f32" and compute_set.work_estimate.multiply_adds and _passes(buffer):
                island(buffer).kept = max(island(buffer).kept, buffer.shape.elements)
        loop = compute_set.work
        if not isinstance(loop, FusedLoop):
            return
        nest, terms = loop.nest, terms_of(loop.nest)
        for at, term in enumerate(terms):
            if term.opcode and term.element_type == "f32":
                island((number, at)).adds(term, loop.points)
            elif term.opcode == "convert" and term.element_type in HALF and term.operand_types == ("f32",):
                here = island((number, term.operands[0]))
                here.leaves = True
                here.rounded_quotient |= terms[term.operands[0]].opcode == "divide"
        for k, reduction in enumerate(nest.reductions):
            here = island((number, -1 - k))
            if isinstance(reduction.combine, str):
                here.combines.add(reduction.combine)
            here.squares |= any(_is_square(terms, value) for value in reduction.values)
        for access, buffer in buffers_of(compute_set, loop).items():
            if buffer.shape.element_type != "f32" or (_passes(buffer) and buffer in self._read):
                continue
            places = [at for at, term in enumerate(terms) if term.access == access]
            for at in (*places, *(store.node for store in nest.stores if store.access == access)):
                here = island((number, at))
                here.kept = max(here.kept, buffer.shape.elements)


def _is_value(term: Term) -> bool:
    return term.element_type == "f32" and term.number is None


def _is_square(terms: Terms, number: int) -> bool:
    return terms[number].opcode == "multiply" and len(set(terms[number].operands)) == 1


def _passes(buffer: Buffer) -> bool:
    """Whether an array passes fp32 values between compute sets: scalars, variables, feeds and constants do not."""
    return buffer.kind == "arena" and buffer.shape.element_type == "f32" and buffer.shape.elements > 1


def exponential_sums(compute_sets: Sequence[ComputeSet]) -> frozenset[Buffer]:
    """The arrays of a program that are sums of exponentials: divisors of softmax, whose inverses are factors."""
    found = set[Buffer]()
    for each in compute_sets:
        if isinstance(each.work, FusedLoop):
            found |= _sums(each, each.work, found)
    return frozenset(found)


def _sums(compute_set: ComputeSet, loop: FusedLoop, known: set[Buffer]) -> set[Buffer]:
    """The sums that one compute set writes: of exponentials, or of partial sums of them."""
    buffers, terms = buffers_of(compute_set, loop), terms_of(loop.nest)
    found = set()
    for reduction in loop.nest.reductions:
        value = before_conversions(terms, reduction.values[0])
        if reduction.combine == "add" and (value.opcode == "exponential" or buffers.get(value.access) in known):
            found |= {buffers[access] for access in reduction.accesses if access in buffers}
    return found
