"""Chains of works that run unit by unit: all works for one unit before the next unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import ClassVar

from engine.codelets.chain import Chain, ChainedCodelet, ForwardedAddress, chain, chain_scratch
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import block
from engine.frozen import frozen
from engine.host.encode import encode
from engine.program.buffer import Address, Buffer
from engine.program.program import ComputeSet, Partition, Program, Span, WorkEstimate
from engine.program.rewriter import with_each
from engine.program.work.base import Addressed, Footprint, Work, addresses_in


@frozen
class ChainedWork(Addressed):
    """Work of `units` units, of which `ratio` make one unit of the chain."""

    work: Work
    ratio: int
    units: int


@frozen
class UnitChain(HostWork):
    """Works run `parts` units at a time. `own` are buffers that only links use, with the bytes of such a slice in
    scratch.
    """

    reads_itself: ClassVar[bool] = True

    links: tuple[ChainedWork, ...]
    own: tuple[tuple[Buffer, int], ...] = ()
    parts: int = 1

    @property
    def unit_count(self) -> int:
        return max(-(-link.units // link.ratio) for link in self.links)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses of the links except their own buffers."""
        own = {buffer for buffer, _ in self.own}
        return tuple(a for a in addresses_in(self.links) if a.buffer not in own)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints of the links, except for buffers in scratch."""
        own = {buffer for buffer, _ in self.own}
        return (
            f for work in (link.work for link in self.links) for f in work.footprints() if f.address.buffer not in own
        )

    def encode(self) -> Encoded:
        """The head of `chain`: its links and slices of scratch; then the parameter blocks of all links."""
        blocks = [encode(link.work) for link in self.links]
        starts = [0, *accumulate(len(each.words) for each in blocks)]
        sizes = dict(self.own)
        slices = [sizes[buffer] for buffer in sizes]
        scratch, (*starts_of_slices, inside) = chain_scratch(starts[-1], slices, [each.scratch for each in blocks])
        offsets = dict(zip(sizes, starts_of_slices, strict=True))
        links = [
            ChainedCodelet(parameters=start, ratio=link.ratio, units=link.units)
            for start, link in zip(starts, self.links, strict=False)
        ]
        relocated = [
            ForwardedAddress(word=at + r.word, offset=offsets[r.address.buffer], bytes=sizes[r.address.buffer])
            for at, each in zip(starts, blocks, strict=False)
            for r in each.relocations
            if r.address.buffer in sizes
        ]
        head = Chain(
            links=len(links),
            relocated=len(relocated),
            parameter_words=starts[-1],
            block_bytes=inside,
            parts=self.parts,
        )
        codelets = (
            Chain.WORDS + ChainedCodelet.WORDS * number + ChainedCodelet.CODELET for number in range(len(blocks))
        )
        first = Chain.WORDS + ChainedCodelet.WORDS * len(links) + ForwardedAddress.WORDS * len(relocated)
        called = (
            (first + start + word, code)
            for start, each in zip(starts, blocks, strict=False)
            for word, code in each.calls
        )
        return Encoded.of(
            chain,
            block(head, links, relocated, *(each.parts(sizes) for each in blocks)),
            scratch,
            (*zip(codelets, (each.codelet for each in blocks), strict=True), *called),
        )


def chained(links: Sequence[ComputeSet], own: dict[Buffer, int]) -> ComputeSet:
    """One compute set of several, unit by unit; `own` are buffers kept in scratch, with the bytes of a unit's slice."""
    units = min(each.units for each in links)
    works = tuple(ChainedWork(each.work, each.units // units, each.units) for each in links)
    elements: Counter[str] = Counter()
    for each in links:
        elements.update(each.work_estimate.elements)
    products = sum(each.work_estimate.multiply_adds for each in links)

    def merged(spans_of: Callable[[ComputeSet], list[Span]]) -> list[Span]:
        spans = [(span, each.units // units) for each in links for span in spans_of(each) if span.buffer not in own]
        return list(dict.fromkeys(replace(s, partition=of_chain(s.partition, ratio)) for s, ratio in spans))

    return ComputeSet(
        " ".join(each.name for each in links),
        UnitChain(works, tuple(own.items())),
        units,
        merged(lambda each: each.reads),
        merged(lambda each: each.writes),
        WorkEstimate(dict(elements), products, links[0].work_estimate.element_type),
        links[0].op_name,
    )


def of_chain(partition: Partition | None, ratio: int) -> Partition | None:
    """The partition by units of a chain, each of which is `ratio` units of a compute set."""
    return partition if partition is None or ratio == 1 else replace(partition, grain=partition.grain * ratio)


def with_work(each: ComputeSet, change: Callable[[Work], Work]) -> ComputeSet:
    """The compute set with `change` of its work, or of the works of a chain; itself if nothing changes."""
    old = each.work
    if not isinstance(old, UnitChain):
        new = change(old)
        return each if new is old else replace(each, work=new)
    links = tuple(replace(link, work=change(link.work)) for link in old.links)
    if all(changed.work is link.work for changed, link in zip(links, old.links, strict=True)):
        return each
    return replace(each, work=replace(old, links=links))


def with_works(program: Program, change: Callable[[Work], Work]) -> Program:
    """The program with `change` of each work, also of the links of chains; itself if nothing changes."""
    return with_each(program, lambda each: with_work(each, change))
