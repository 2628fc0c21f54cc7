"""Puts the calls between processes into one order, by a token through loops and branches.

Processes have programs of their own, which differ in constants, and so may be scheduled differently; but all must make
their calls in the same order. Neighbouring sums become one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Computation, Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.partition.instruction_copies import add_copy
from engine.partition.process_sums import with_sums_together
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed

TOKEN = Shape("s32")


def in_one_order(module: Module) -> Module:
    """The module with calls between processes in program order; its loops and branches must take tuples."""
    return Module(module.name, _copied(module.entry, False, False), module.aliases)


def communicates(computation: Computation) -> bool:
    """Whether a computation calls other processes, in loops and branches too."""
    return any(i.get("of_processes") or communicates_in(i) for i in computation.instructions)


def communicates_in(instruction: Instruction) -> bool:
    """Whether computations that an instruction calls communicate with other processes."""
    return any(map(communicates, instruction.called))


def _copied(computation: Computation, takes_token: bool, gives_token: bool) -> Computation:
    """A copy whose parameter (`takes_token`) and root (`gives_token`) have the token as an additional last element."""
    copy = _Copy(Builder(computation.name))
    for item in with_sums_together(computation.instructions, communicates_in):
        if isinstance(item, Instruction):
            copy.add(item, takes_token)
        else:
            copy.add_sums(item)
    root = copy.whole(computation.root)
    return with_own_names(copy.b.build(copy.joined(root) if gives_token else root))


class _Copy:
    """The computation that is being built, and the token after its latest call."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self._token: Instruction | None = None
        self._new: dict[Instruction, Instruction] = {}

    def add(self, instruction: Instruction, takes_token: bool) -> None:
        """Copies an instruction, whose operands have been copied."""
        if instruction.opcode == "parameter" and takes_token:
            self._with_token(instruction, self.b.parameter_of(_extended(instruction)))
        elif communicates_in(instruction):
            self._control_flow(instruction)
        elif instruction.get("of_processes"):
            call = add_copy(self.b, instruction, [*map(self.whole, instruction.operands[:-1]), self._latest()])
            self._new[instruction], self._token = call, self.b.get_tuple_element(call, len(call.tuple_shapes) - 1)
        elif instruction.opcode == "get-tuple-element":
            self._new[instruction] = add_copy(self.b, instruction, [self._new[instruction.operands[0]]])
        else:
            self._new[instruction] = add_copy(self.b, instruction, map(self.whole, instruction.operands))

    def add_sums(self, calls: Sequence[Instruction]) -> None:
        """Copies several calls that sum as one call; their operands have been copied."""
        operands = [self.whole(operand) for call in calls for operand in call.operands[:-1]]
        shape = TupleShape((*(each for call in calls for each in call.tuple_shapes[:-1]), TOKEN))
        made = changed(calls[0], shape=shape, operands=[*operands, self._latest()])
        self.b.instructions.append(made)
        *sums, self._token = self._elements(made)
        for call in calls:
            count = len(call.operands) - 1
            self._new[call] = self.b.tuple(*sums[:count], self._token)
            del sums[:count]

    def whole(self, instruction: Instruction) -> Instruction:
        """The copy of an instruction, without the token."""
        new = self._new[instruction]
        return new if new.shape == instruction.shape else self.b.tuple(*self._elements(new)[:-1])

    def joined(self, value: Instruction) -> Instruction:
        """A tuple with the token as last element."""
        return self.b.tuple(*self._elements(value), self._latest())

    def _control_flow(self, instruction: Instruction) -> None:
        if instruction.opcode == "while":
            body, condition = instruction.called
            called: Sequence[Computation] = (_copied(body, True, True), _copied(condition, True, False))
            operands = [self.joined(self.whole(instruction.operands[0]))]
        else:
            choice, *arguments = map(self.whole, instruction.operands)
            called = [_copied(branch, True, True) for branch in instruction.called]
            operands = [choice, *map(self.joined, arguments)]
        made = changed(instruction, shape=_extended(instruction), operands=operands, called=tuple(called))
        self.b.instructions.append(made)
        self._with_token(instruction, made)

    def _with_token(self, instruction: Instruction, new: Instruction) -> None:
        self._new[instruction] = new
        self._token = self.b.get_tuple_element(new, len(_elements(instruction)))

    def _latest(self) -> Instruction:
        if self._token is None:
            self._token = self.b.constant(0, "s32")
        return self._token

    def _elements(self, value: Instruction) -> list[Instruction]:
        return [self.b.get_tuple_element(value, index) for index in range(len(_elements(value)))]


def _elements(instruction: Instruction) -> tuple:
    assert isinstance(instruction.shape, TupleShape)
    return instruction.shape.elements


def _extended(instruction: Instruction) -> TupleShape:
    return TupleShape((*_elements(instruction), TOKEN))
