"""A program: compute sets of vertices over buffers, in the order in which they run.

A compute set is work cut into `units`; like vertices on neighbouring tiles are stored as one run of units. What it
reads and writes is stated by spans, from which follow the syncs, the memory plan and the account.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.ir.device_operations import QueueSignature
from engine.ir.origin import Origin
from engine.ir.shape import Shape
from engine.program.buffer import Address as Address
from engine.program.buffer import Buffer as Buffer
from engine.program.buffer import IterationNumber as ByTurn
from engine.program.convolution_size import ConvolutionSize
from engine.program.work.base import Relocation as Relocation
from engine.program.work.base import Work


@dataclass(frozen=True, slots=True)
class Partition:
    """Units own pieces of a dimension: unit u has the elements e with u*grain <= e // inner % extent < (u+1)*grain."""

    inner: int
    extent: int
    grain: int


@dataclass(frozen=True, slots=True)
class Slot:
    """So many bytes of a buffer, which begin somewhere else in each turn of a loop; at -1 in turns without it."""

    begin: ByTurn
    bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a buffer that a compute set touches: each unit its piece, or (None) any unit anything.

    If only one slot of the buffer is touched in each turn, it is that of `slot`.
    """

    buffer: Buffer
    partition: Partition | None = None
    slot: Slot | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """What a compute set costs, for the device model: elements by opcode, and multiply-adds on the matrix unit.

    `product` is [batches, rows, columns, k] of what is asked for, where the codelet goes about it in another way;
    `convolution` the sizes of a convolution. `windows` are the taps of each window where neighbours are combined,
    `lookups` the slices of an array that are picked or updated by index. `partials_type` is "f16" or "f32" where the
    partial sums of a product or a convolution are asked to be of that type.
    """

    elements: dict[str, int] = field(default_factory=dict)
    multiply_adds: int = 0
    element_type: str = "f32"
    product: tuple[int, int, int, int] | None = None
    convolution: ConvolutionSize | None = None
    windows: int = 0
    lookups: int = 0
    partials_type: str = ""


@dataclass(eq=False, slots=True)
class ComputeSet:
    """Work done by many vertices, one or more units each; it is encoded when an executable is made.

    With `one_worker` all units run on one worker. `overwrites` is a buffer it reads that may also be where it writes.
    `origins` are those of a fused loop's nodes by number, and of its reductions by -1 - number.
    """

    name: str
    work: Work
    units: int
    reads: list[Span]
    writes: list[Span]
    effort: Effort = field(default_factory=Effort)
    op_name: str = ""
    one_worker: bool = False
    overwrites: Buffer | None = None
    origins: dict[int, Origin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something before compute set `position` that steers: all workers meet here.

    `kind` is "label" (a place to go to), "jump" (go to the label), "branch" (go there if the predicate is `when`) or
    "leave" (the step ends here if the compute set before has waited for the host in vain). A branch without a predicate
    is taken in the turns of a loop in which `known` is `when`: each worker decides by itself.
    Where `when` is set, a jump is a place at which an interrupted call leaves its step; so it is with a "repeat", which
    goes back to the label until there were so many `turns`. Each worker counts them, in its counter number `counter`.
    """

    position: int
    kind: str
    label: int
    predicate: Buffer | None = None
    when: bool = False
    turns: int = 0
    counter: int = 0
    known: ByTurn | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Compute sets begin <= k < end that run together: again and again (`repeats`), or not at all.

    `turns` is how often the body of a loop runs, None if that shows only while it runs. A `long` loop may take so long
    that nobody would wait for its end: an interruption leaves it, and variables keep their old values until it is over.
    """

    begin: int
    end: int
    repeats: bool
    turns: int | None = None
    long: bool = False


@dataclass(frozen=True, slots=True)
class ProgramQueue:
    """A queue of a program: buffers that stand for its ring's control block and slots, and for the call block."""

    signature: QueueSignature
    control: Buffer
    leaves: tuple[Buffer, ...]
    call: Buffer


@dataclass(frozen=True, slots=True)
class ExceptionRecord:
    """Where a program counts floating-point exceptions: an array of int64 on the host.

    `counters` has the word of the first of three counters for each operation that is looked after, in the order of the
    program; `stops` the words for the address of what ends a call.
    """

    buffer: Buffer
    counters: tuple[tuple[int, Origin], ...]
    stops: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Program:
    """Compute sets in order, and which buffers are the program's face to the outside.

    `feeds` and `variables` are by entry parameter number; `outputs` hold the results that are not variables.
    `exception_names` are the floating-point exceptions to look for; `exceptions` is there once checks have been added.
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
