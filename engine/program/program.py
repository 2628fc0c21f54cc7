"""A program: compute sets of vertices over buffers, in execution order.

A compute set is work divided into `units`; like vertices on neighbouring tiles are stored as one run of units. Its
reads and writes are stated by spans, from which the syncs, the memory plan and the cost report follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.frozen import frozen
from engine.ir.device_operations import QueueSignature
from engine.ir.origin import Origin
from engine.ir.shape import Shape
from engine.program.buffer import Address as Address
from engine.program.buffer import Buffer as Buffer
from engine.program.buffer import IterationNumber as PerIteration
from engine.program.buffer import Label as Label
from engine.program.buffer import Role as Role
from engine.program.work.base import Work


@frozen
class Partition:
    """Units own slices of a dimension: unit u has the elements e with u*grain <= e // inner % extent < (u+1)*grain."""

    inner: int
    extent: int
    grain: int


@frozen
class Slot:
    """`bytes` of a buffer from an offset per iteration of a loop; the offset is -1 in iterations without the slot."""

    begin: PerIteration
    bytes: int


@frozen
class Span:
    """The part of a buffer that a compute set touches: each unit touches its slice, or without a partition any element.

    With `slot`, each iteration touches only that slot of the buffer.
    """

    buffer: Buffer
    partition: Partition | None = None
    slot: Slot | None = None


@frozen
class VertexCycles:
    """Cycles that a user's vertex declares: of a worker thread on the chip, for `one` row and for `grain` of `rows`."""

    rows: int
    grain: int
    one: int
    many: int


@frozen
class WorkEstimate:
    """Cost of a compute set, for the device model: elements by opcode, and multiply-adds on the matrix unit.

    `product` is [batches, rows, columns, k] of the product requested, where the codelet computes it in another way.
    `windows` are the taps of each window where neighbours are combined, `lookups` the slices of an array that are
    gathered or updated by index. `partials_type` is "f16" or "f32" where the partial sums of a product or a convolution
    are requested in that type.
    """

    elements: dict[str, int] = field(default_factory=dict)
    multiply_adds: int = 0
    element_type: str = "f32"
    product: tuple[int, int, int, int] | None = None
    windows: int = 0
    lookups: int = 0
    partials_type: str = ""
    vertex: VertexCycles | None = None

    @property
    def total(self) -> int:
        """Elements and multiply-adds."""
        return self.multiply_adds + sum(self.elements.values())


@dataclass(eq=False, slots=True)
class ComputeSet:
    """Work done by many vertices, one or more units each; it is encoded when an executable is built.

    With `one_worker` all units run on one worker. With `claimed`, workers claim parts as they become free: one may be
    in a function of the host. With `once` the compute set runs before the first step only: it reads constants and
    writes permanent buffers, which others only read. `overwrites` is a buffer that is read and may be written in place.
    `origins` has the origins of a fused loop's nodes by number, and of its reductions by -1 - number. `of_body` is the
    compute set of an outlined body that this one is a copy of: a chip has one compute set for all the copies.
    """

    name: str
    work: Work
    units: int
    reads: list[Span]
    writes: list[Span]
    work_estimate: WorkEstimate = field(default_factory=WorkEstimate)
    op_name: str = ""
    one_worker: bool = False
    claimed: bool = False
    once: bool = False
    overwrites: Buffer | None = None
    origins: dict[int, Origin] = field(default_factory=dict)
    of_body: ComputeSet | None = None

    def with_buffers(self, change: Callable[[Buffer], Buffer]) -> ComputeSet:
        """A copy of the compute set on other buffers: `change(buffer)` in place of each."""

        def moved(address: Address) -> Address:
            buffer = change(address.buffer)
            return address if buffer is address.buffer else replace(address, buffer=buffer)

        return replace(
            self,
            work=self.work.with_addresses(moved),
            reads=[replace(span, buffer=change(span.buffer)) for span in self.reads],
            writes=[replace(span, buffer=change(span.buffer)) for span in self.writes],
            overwrites=None if self.overwrites is None else change(self.overwrites),
        )


@frozen
class Mark:
    """Control flow before compute set `position`: all workers synchronise here.

    `kind` is "label" (a target), "jump" (go to the label), "branch" (go there if the predicate is `when`) or "leave"
    (the step ends here if the compute set before has waited for the host in vain). A branch without a predicate is
    taken in the iterations of a loop in which `known` is `when`: each worker decides by itself. A "repeat" goes back to
    the label until there were `iterations` iterations, which each worker counts in its counter number `counter`. An
    interrupted call leaves its step at a jump or a "repeat" with `when`.
    """

    position: int
    kind: str
    label: int
    predicate: Buffer | None = None
    when: bool = False
    iterations: int = 0
    counter: int = 0
    known: PerIteration | None = None


@frozen
class Region:
    """Compute sets begin <= k < end that run together: as a loop's body (`repeats`), or conditionally.

    `iterations` is the trip count of a loop, None if it is known only at run time. A `long` loop may take so long that
    a call cannot wait for its end: an interruption leaves it, and variables keep their old values until it is over.
    """

    begin: int
    end: int
    repeats: bool
    iterations: int | None = None
    long: bool = False


@frozen
class ProgramQueue:
    """A queue of a program: buffers for its ring's control block and slots."""

    signature: QueueSignature
    control: Buffer
    leaves: tuple[Buffer, ...]


@frozen
class ExceptionRecord:
    """Counters of a program's floating-point exceptions: an array of int64 on the host.

    `counters` has the word of the first of three counters for each checked operation, in the order of the program;
    `stops` the words for the address of what ends a call.
    """

    buffer: Buffer
    counters: tuple[tuple[int, Origin], ...]
    stops: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Program:
    """Compute sets in order, and the buffers that are the program's interface.

    `feeds` and `variables` are by entry parameter number; `outputs` hold the results that are not variables.
    `call` is the call block of programs that wait for the host or call it. `exception_names` are the floating-point
    exceptions to detect; `exceptions` is set once checks have been added.
    """

    name: str
    compute_sets: list[ComputeSet]
    feeds: dict[int, Buffer]
    variables: dict[int, Buffer]
    outputs: list[Buffer]
    output_shapes: list[Shape]
    marks: list[Mark] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    queues: dict[str, ProgramQueue] = field(default_factory=dict)
    exception_names: tuple[str, ...] = ()
    exceptions: ExceptionRecord | None = None
    call: Buffer | None = None

    def innermost_region(self, at: int) -> tuple[int, int]:
        """Begin and end of the innermost region around compute set `at`; the whole program where there is none."""
        around = [(region.begin, region.end) for region in self.regions if region.begin <= at < region.end]
        return min(around, key=lambda each: each[1] - each[0], default=(0, len(self.compute_sets)))
