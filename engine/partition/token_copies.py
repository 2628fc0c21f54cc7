"""Copies of computations with a token, an s32 scalar, that goes through some instructions in their order.

A loop or branch with such instructions has the token as an additional last element of its arguments and results, a
called computation as an additional last parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from engine.ir import AnyShape, Computation, Instruction, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import TOKEN
from engine.partition.instruction_copies import add_copy
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed


class Tokens(ABC):
    """The instructions that take a token, and the computations that are copied for them, each once."""

    def __init__(self) -> None:
        self._having: dict[Computation, bool] = {}
        self._copied: dict[tuple[Computation, str, bool], Computation] = {}

    @abstractmethod
    def takes(self, instruction: Instruction) -> bool:
        """Whether an instruction takes the token."""

    @abstractmethod
    def add(self, copy: TokenCopy, instruction: Instruction) -> None:
        """Adds the copy of an instruction that takes the token."""

    def add_all(self, copy: TokenCopy, computation: Computation) -> None:
        """Adds the copies of a computation's instructions."""
        for instruction in computation.instructions:
            copy.add(instruction)

    def are_inside(self, instruction: Instruction) -> bool:
        """Whether instructions that take the token are in computations that an instruction calls."""
        return any(map(self._are_in, instruction.called))

    def _are_in(self, computation: Computation) -> bool:
        if computation not in self._having:
            self._having[computation] = any(self.takes(i) or self.are_inside(i) for i in computation.instructions)
        return self._having[computation]

    def copied(self, caller: Instruction) -> tuple[Computation, ...]:
        """The copies of the computations that an instruction calls; a loop's condition gives no token."""
        conditions = caller.called[1:] if caller.opcode == "while" else ()
        return tuple(self._one(each, caller.opcode, each not in conditions) for each in caller.called)

    def _one(self, computation: Computation, caller: str, gives: bool) -> Computation:
        key = computation, caller, gives
        if key not in self._copied:
            copy = TokenCopy(Builder(computation.name), self)
            copy.begin(computation, caller)
            self.add_all(copy, computation)
            root = copy.whole(computation.root)
            self._copied[key] = with_own_names(copy.b.build(copy.joined(root, copy.take()) if gives else root))
        return self._copied[key]


class TokenCopy:
    """A computation that is being built, and the token after the latest instruction that takes it."""

    def __init__(self, b: Builder, tokens: Tokens) -> None:
        self.b, self.new = b, dict[Instruction, Instruction]()
        self._tokens = tokens
        self._token: Instruction | None = None

    def take(self) -> Instruction:
        """The token for the next instruction."""
        if self._token is None:
            self._token = self.b.constant(0, "s32")
        return self._token

    def give(self, token: Instruction) -> None:
        """Replaces the token by the one after an instruction."""
        self._token = token

    def begin(self, computation: Computation, caller: str) -> None:
        """Adds the parameter that has the token."""
        if caller == "call":
            self.give(self.b.instruction("parameter", TOKEN, parameter_number=len(computation.parameters)))
        else:
            (parameter,) = computation.parameters
            self._with_token(parameter, self.b.parameter_of(extended(parameter.shape)))

    def add(self, instruction: Instruction) -> None:
        """Adds the copy of an instruction, whose operands have been copied."""
        if instruction in self.new:
            return
        if self._tokens.are_inside(instruction):
            self._calling(instruction)
        elif self._tokens.takes(instruction):
            self._tokens.add(self, instruction)
        elif instruction.opcode == "get-tuple-element":
            self.new[instruction] = add_copy(self.b, instruction, [self.new[instruction.operands[0]]])
        else:
            self.new[instruction] = add_copy(self.b, instruction, map(self.whole, instruction.operands))

    def whole(self, instruction: Instruction) -> Instruction:
        """The copy of an instruction, without the token."""
        new = self.new[instruction]
        if new.shape == instruction.shape:
            return new
        *elements, _ = self.b.elements(new)
        return elements[0] if isinstance(instruction.shape, Shape) else self.b.tuple(*elements)

    def joined(self, value: Instruction, token: Instruction) -> Instruction:
        """A tuple with a token as last element."""
        return self.b.tuple(*self.b.elements(value), token)

    def _calling(self, instruction: Instruction) -> None:
        token, operands = self.take(), [*map(self.whole, instruction.operands)]
        if instruction.opcode == "call":
            operands.append(token)
        else:
            first = int(instruction.opcode == "conditional")
            operands[first:] = [self.joined(operand, token) for operand in operands[first:]]
        called = self._tokens.copied(instruction)
        made = changed(instruction, shape=extended(instruction.shape), operands=operands, called=called)
        self.b.instructions.append(made)
        self._with_token(instruction, made)

    def _with_token(self, instruction: Instruction, new: Instruction) -> None:
        self.new[instruction] = new
        self.give(self.b.get_tuple_element(new, len(elements_of(instruction.shape))))


def elements_of(shape: AnyShape) -> Sequence[AnyShape]:
    """The shapes of a tuple's elements; an array's own."""
    return [shape] if isinstance(shape, Shape) else shape.elements


def extended(shape: AnyShape) -> TupleShape:
    """The shape of a value with a token behind it."""
    return TupleShape((*elements_of(shape), TOKEN))
