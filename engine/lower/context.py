"""The state of lowering: the buffer that holds each value, and the compute sets so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction, Module, Shape
from engine.ir.affine import Affine, loop_index, pull
from engine.ir.attributes import PARTIALS_SCOPE, PARTIALS_TYPES
from engine.ir.opcodes import AFFINE, SOURCES, TUPLES, registering
from engine.ir.trip_counts import TripCounts
from engine.program.builder import ProgramBuilder
from engine.program.control_words import CallBlock
from engine.program.program import (
    Buffer,
    ComputeSet,
    Mark,
    Partition,
    PerIteration,
    ProgramQueue,
    Region,
    Span,
    WorkEstimate,
)
from engine.program.views import View, through, whole
from engine.program.work.base import Work

NO_WORK = WorkEstimate()
Value = Buffer | tuple["Value", ...]
Lowering = Callable[["Context", Instruction], Value]
LOWERINGS: dict[str, Lowering] = {}
CUSTOM_CALLS: dict[str, Lowering] = {}
DEFERRED = AFFINE | SOURCES | TUPLES
"""Opcodes that are lowered when their results are first read: most moves need no memory."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """A loop whose trip count is known, while its body is lowered; each worker counts iterations in its `counter`.

    In a branch, `taken` says for each iteration whether the branch runs, if that is known.
    """

    loop: Instruction
    iterations: int
    counter: int
    taken: tuple[bool, ...] | None = None

    def where(self, taken: Sequence[bool]) -> Iteration:
        """Narrows the iteration to a branch that runs where `taken` says so, inside the branches around it."""
        before = self.taken or (True,) * self.iterations
        return replace(self, taken=tuple(a and b for a, b in zip(before, taken, strict=True)))


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a concatenation, and the numbers of the operands that their producers write there."""

    buffer: Buffer
    there: set[int]


@dataclass(frozen=True, slots=True)
class LoweredBody:
    """The compute sets of a body that is called; `parameters` stand for the buffers of a call's operands."""

    parameters: list[Buffer]
    compute_sets: list[ComputeSet]
    value: Value
    partitions: dict[Buffer, Partition]


lowering, custom_call = registering(LOWERINGS), registering(CUSTOM_CALLS)
"""Decorators of a function that lowers an instruction to compute sets and returns its result's buffers: by opcode, and
by the target of a custom call."""
_FACTOR = (
    "tf.linalg.qr, solve and inv come to this where matrices are complex, or of a shape that a called tf.function does "
    "not know. Give it one by tf.ensure_shape, compute with real matrices, use tf.linalg.cholesky "
    "with cholesky_solve or triangular_solve, or factor on the host, in the input pipeline."
)
INSTEAD = {
    "Qr": _FACTOR,
    "ProductOfElementaryHouseholderReflectors": _FACTOR,
    "Eigh": "tf.linalg.eigh and eigvalsh of float32 and float64 run, of shapes that a called tf.function knows. Give a "
    "matrix one by tf.ensure_shape, compute with real matrices, or factor on the host, in the input pipeline.",
}
"""Advice for a custom call that does not run, by the call's target."""


class Context(ProgramBuilder):
    """The state of lowering a module: values by instruction, moves resolved to views, compute sets in order."""

    def __init__(self, module: Module, roles: list[str], constants: dict[int, np.ndarray]) -> None:
        super().__init__()
        self.module, self.roles, self.constants = module, roles, constants
        self.values: dict[Instruction, Value] = {}
        self.targets: dict[Instruction, Buffer] = {}
        self.joined: dict[Instruction, Joined] = {}
        self.marks: list[Mark] = []
        self.regions: list[Region] = []
        self.trip_counts = TripCounts(module)
        self.iteration: Iteration | None = None
        self.arguments: dict[Instruction, Instruction] = {}
        self.loop_body: Computation | None = None
        self.counters = 0
        self._labels = 0
        self._users: dict[Instruction, list[Instruction]] = {}
        self.feeds: dict[int, Buffer] = {}
        self.variables: dict[int, Buffer] = {}
        self.queues: dict[str, ProgramQueue] = {}
        self.call: Buffer | None = None
        self.bodies: dict[Hashable, LoweredBody] = {}

    def users(self, instruction: Instruction) -> list[Instruction]:
        """The instructions with this one's result as an operand; none for one that a lowering has created."""
        if not self._users:
            for computation in self.module.computations():
                self._users |= computation.users()
        return self._users.get(instruction, [])

    def result_buffer(self, instruction: Instruction, number: int | None = None) -> Buffer:
        """The buffer of an instruction's result (or of element `number` of its tuple): a given target or a new one."""
        if number is None and instruction in self.targets:
            return self.targets[instruction]
        shape = instruction.array_shape if number is None else instruction.tuple_shapes[number]
        name = instruction.name if number is None else f"{instruction.name}.{number}"
        return Buffer(name, shape)

    def call_block(self) -> Buffer:
        """The block by which work that waits for the host, or calls it, sees and ends the running call."""
        if self.call is None:
            self.call = Buffer("call block", Shape("s64", (CallBlock.WORDS,)), "queue")
        return self.call

    def emit_for(
        self,
        instruction: Instruction,
        work: Work,
        units: int,
        reads: Iterable[Span | Buffer],
        writes: Iterable[Span | Buffer],
        work_estimate: WorkEstimate = NO_WORK,
        *,
        suffix: str = "",
        one_worker: bool = False,
    ) -> None:
        """Emits a compute set named after an instruction, if it has units; a buffer stands for a span of all of it."""
        if units:
            read, written = (
                [each if isinstance(each, Span) else Span(each) for each in side] for side in (reads, writes)
            )
            name, op_name = instruction.name + suffix, instruction.op_name
            self.emit(ComputeSet(name, work, units, read, written, work_estimate, op_name, one_worker))

    def new_label(self) -> int:
        """A new label number, for marks."""
        self._labels += 1
        return self._labels

    def mark(
        self,
        kind: str,
        label: int,
        predicate: Buffer | None = None,
        when: bool = False,
        iteration: Iteration | None = None,
        known: PerIteration | None = None,
    ) -> None:
        """Adds control flow before the next compute set that is emitted."""
        iterations, counter = (iteration.iterations, iteration.counter) if iteration is not None else (0, 0)
        self.marks.append(Mark(len(self.compute_sets), kind, label, predicate, when, iterations, counter, known))

    def value(self, instruction: Instruction) -> Value:
        """The instruction's value, lowered now if it was deferred. Raises UnsupportedOperation if it cannot be."""
        if instruction not in self.values:
            for each in self._deferred_before(instruction):
                self.values[each] = self._lower(each)
        return self.values[instruction]

    def _deferred_before(self, instruction: Instruction) -> list[Instruction]:
        """The moves that must be in memory before an instruction, then the instruction (no recursion)."""
        found = [instruction]
        while found[-1].opcode in AFFINE:
            move = found[-1]  # a reshape shares its operand's memory
            base = move.operands[0] if move.opcode == "reshape" else self._through_moves(move)[0]
            if base in self.values or base.opcode not in AFFINE or base is move:
                break
            found.append(base)
        return found[::-1]

    def buffer(self, instruction: Instruction) -> Buffer:
        """The buffer that holds an array in row-major order."""
        value = self.value(instruction)
        assert isinstance(value, Buffer), instruction
        return value

    def _lower(self, instruction: Instruction) -> Value:
        function = LOWERINGS.get(instruction.opcode)
        if function is None:
            raise self.unsupported(instruction)
        before = len(self.compute_sets)
        value = function(self, instruction)
        self._note_partials(instruction, before)
        return value

    def _note_partials(self, instruction: Instruction, begin: int) -> None:
        """Records the type of partial sums that a scope requests on the products emitted for an instruction."""
        asked = instruction.get("frontend_attributes", {}).get(PARTIALS_SCOPE)
        if asked not in PARTIALS_TYPES:
            return
        for each in self.compute_sets[begin:]:
            if each.work_estimate.multiply_adds and not each.work_estimate.partials_type:
                each.work_estimate = replace(each.work_estimate, partials_type=PARTIALS_TYPES[asked])

    @staticmethod
    def unsupported(instruction: Instruction) -> UnsupportedOperation:
        """The error for an instruction that has no lowering."""
        origin = f" It comes from {instruction.op_name}." if instruction.op_name else ""
        target = instruction.get("custom_call_target")
        received = f"{instruction.opcode} of {target!r}, a function of XLA's own" if target else instruction.opcode
        advice = INSTEAD.get(target, "Replace it or move it into the input pipeline.")
        return UnsupportedOperation(
            f"Expected an operation that the engine runs. Received: {received} "
            f"({instruction.shape}).{origin} docs/supported_ops.md lists what runs. {advice}"
        )

    def view(self, instruction: Instruction) -> View:
        """The array as a strided view of the buffer that holds its elements."""
        if instruction in self.values or instruction.opcode not in AFFINE:
            return whole(self.buffer(instruction), instruction.array_shape)
        return self.view_of_operand(instruction)

    def view_of_operand(self, instruction: Instruction) -> View:
        """The result of a move as a view of its operand, through all moves before it."""
        current, index_map = self._through_moves(instruction)
        return through(self.buffer(current), current.array_shape, index_map, instruction.array_shape)

    def _through_moves(self, instruction: Instruction) -> tuple[Instruction, tuple[Affine, ...]]:
        """The source of a move, through all moves before it whose indices compose, and the affine indices in it."""
        rank = instruction.array_shape.rank
        index_map = tuple(loop_index(d, rank) for d in range(rank))
        current = instruction
        while current is instruction or (current not in self.values and current.opcode in AFFINE):
            pulled = pull(current, index_map, rank)
            if pulled is None:
                break
            index_map, current = pulled, current.operands[0]
        return current, index_map
