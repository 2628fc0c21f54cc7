"""Copies the instructions of one replica for all replicas, into a computation that is being built."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.ir import AnyShape, Computation, Instruction, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import ASSUME_EQUAL, COLLECTIVES, INFEED, OUTFEED, QUEUES, REPLICA_INDEX, target_of
from engine.ir.floating_point import REPLICAS, VARYING
from engine.partition.collectives import stacked, synchronise, unstacked
from engine.partition.instruction_copies import add_copy
from engine.partition.uniformity import Differing, Uniformity, element_range, is_ordered
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.rewriting import changed

FOLD = 0x9E3779B97F4A7C15
"""An odd number, 2**64 over the golden ratio: replica r draws random numbers with the key xor (r times this)."""


@frozen
class Held:
    """An array as the replicas hold it: one instruction for all of them, or one for each."""

    kind: Differing
    copies: tuple[Instruction, ...]

    def of(self, position: int) -> Instruction:
        """The copy of the replica at an index."""
        return self.copies[position if len(self.copies) > 1 else 0]

    def only(self, position: int) -> Held:
        """The copies of the replica at one index alone."""
        return Held(self.kind, (self.of(position),))


Value = list[Held]
"""The leaves of an instruction's value; an array has one."""


class ReplicaCopies:
    """Copies computations for some of the replicas: for all, or for one where control flow diverges."""

    def __init__(self, builder: Builder, uniformity: Uniformity, replicas: tuple[int, ...]) -> None:
        self.b, self.uniformity, self.replicas = builder, uniformity, replicas

    @property
    def _together(self) -> bool:
        return len(self.replicas) == self.uniformity.replicas

    def run(self, computation: Computation, arguments: Sequence[Value]) -> dict[Instruction, Value]:
        """The values of all instructions of a computation, which are added to the one being built."""
        values: dict[Instruction, Value] = {}
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                values[instruction] = arguments[instruction["parameter_number"]]
            else:
                values[instruction] = self._value(instruction, [values[o] for o in instruction.operands])
        return values

    def _value(self, instruction: Instruction, operands: list[Value]) -> Value:
        match instruction.opcode:
            case "tuple":
                return [leaf for operand in operands for leaf in operand]
            case "get-tuple-element":
                return operands[0][element_range(instruction.operands[0].shape, instruction["tuple_index"])]
            case "optimization-barrier":
                return operands[0]
            case "while":
                return self._while(instruction, operands[0])
            case "conditional":
                return self._conditional(instruction, operands)
            case "rng-bit-generator":
                return self._random_bits(instruction, operands)
            case "custom-call" if target_of(instruction) in COLLECTIVES | QUEUES or is_ordered(instruction):
                return self._device_operation(instruction, operands)
        return self._copied(instruction, operands)

    # Instructions without side effects

    def _copied(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        kinds = self.uniformity.after(instruction, [tuple(leaf.kind for leaf in value) for value in operands])
        count = len(self.replicas) if Differing.VARYING in kinds else 1
        if count > 1 and "f16" in (shape.element_type for shape in instruction.shape.leaves):
            hints = {**instruction.get("frontend_attributes", {}), REPLICAS: VARYING}
            instruction = changed(instruction, frontend_attributes=hints)
        results = [self._leaves(self._copy(instruction, operands, position)) for position in range(count)]
        return [Held(kind, tuple(copies)) for kind, copies in zip(kinds, zip(*results, strict=True), strict=True)]

    def _copy(self, instruction: Instruction, operands: Sequence[Value], position: int) -> Instruction:
        shapes = [operand.shape for operand in instruction.operands]
        taken = [self._joined(shape, value, position) for shape, value in zip(shapes, operands, strict=True)]
        return add_copy(self.b, instruction, taken)

    def _joined(self, shape: AnyShape, value: Value, position: int) -> Instruction:
        """One replica's copy of a value, a tuple if that is its shape."""
        if isinstance(shape, Shape):
            return value[0].of(position)
        ranges = [element_range(shape, index) for index in range(len(shape.elements))]
        parts = zip(shape.elements, ranges, strict=True)
        return self.b.tuple(*(self._joined(element, value[where], position) for element, where in parts))

    def _leaves(self, value: Instruction) -> list[Instruction]:
        if isinstance(value.shape, Shape):
            return [value]
        return [leaf for element in self.b.elements(value) for leaf in self._leaves(element)]

    # Random numbers

    def _random_bits(self, instruction: Instruction, operands: list[Value]) -> Value:
        """Replicas that share a variable's state draw with keys of their own; the new state is replica 0's."""
        (state,) = operands[0]
        if state.kind is not Differing.STATE or self.uniformity.every == 1:
            return self._copied(instruction, operands)
        numbers = [self.uniformity.first + replica for replica in self.replicas]
        calls = [add_copy(self.b, instruction, [self._folded(state.of(0), number)]) for number in numbers]
        following = self._folded(self.b.get_tuple_element(calls[0], 0), numbers[0])
        bits = tuple(self.b.get_tuple_element(call, 1) for call in calls)
        return [Held(Differing.STATE, (following,)), Held(self.uniformity.different, bits)]

    def _folded(self, state: Instruction, replica: int) -> Instruction:
        """The state with a replica's key xor-ed into its first word; folding twice restores the state."""
        if replica == 0:
            return state
        words = np.zeros(state.array_shape.dimensions, state.array_shape.dtype)
        words[:1] = np.array(replica * FOLD % 2**64, np.uint64)
        return self.b.elementwise("xor", state, self.b.constant(words, state.array_shape.element_type))

    # Queues and collectives

    def _device_operation(self, instruction: Instruction, operands: list[Value]) -> Value:
        target = target_of(instruction)
        if target == REPLICA_INDEX:
            indices = tuple(self.b.constant(self.uniformity.first + replica, "s32") for replica in self.replicas)
            return [Held(self.uniformity.different, indices)]
        if target == ASSUME_EQUAL:
            return [Held(min(leaf.kind, Differing.STATE), (self._of_first(leaf.copies[0]),)) for leaf in operands[0]]
        if not self._together:
            raise _parted(instruction)
        if target == OUTFEED:
            return self._outfeed(instruction, operands)
        if target == INFEED or target not in COLLECTIVES:
            return self._in_sequence(instruction, operands)
        (operand,) = operands[0]
        taken = [operand.of(replica) for replica in self.replicas]
        copies = synchronise(self.b, instruction, taken, self.uniformity.processes)
        (kind,) = self.uniformity.after(instruction, [(operand.kind,)])
        # A result that is the same on all replicas has one copy.
        copies = copies if kind is Differing.VARYING else copies[:1]
        return [Held(kind, tuple(copies))]

    def _of_first(self, copy: Instruction) -> Instruction:
        """A value of the first replica of all processes."""
        processes = self.uniformity.processes
        return copy if processes is None else unstacked(self.b, processes.gathered(self.b, copy), 0)

    def _outfeed(self, instruction: Instruction, operands: list[Value]) -> Value:
        """One row of all replicas, stacked along a new first dimension if there are more than one."""
        *leaves, (token,) = operands
        if len(self.replicas) == 1:
            taken = [leaf.of(0) for (leaf,) in leaves]
        else:
            taken = [stacked(self.b, [leaf.of(position) for position in self.replicas]) for (leaf,) in leaves]
        call = add_copy(self.b, instruction, [*taken, token.of(0)])
        return [Held(Differing.STATE, (each,)) for each in self._leaves(call)]

    def _in_sequence(self, instruction: Instruction, operands: list[Value]) -> Value:
        """Each replica's execution takes the token of the previous one."""
        *leaves, (token,) = operands
        following, results = token.of(0), []
        for position in range(len(self.replicas)):
            taken = [self._joined(o.shape, v, position) for o, v in zip(instruction.operands, leaves, strict=False)]
            *elements, following = self._leaves(add_copy(self.b, instruction, [*taken, following]))
            results.append(elements)
        held = [Held(self.uniformity.different, copies) for copies in zip(*results, strict=True)]
        return [*held, Held(Differing.STATE, (following,))]

    # Control flow

    def _while(self, loop: Instruction, initial: Value) -> Value:
        kinds = self.uniformity.loop(loop, tuple(leaf.kind for leaf in initial))
        if not kinds.divergent or len(self.replicas) == 1:
            transposed = self._one_while(loop, initial, kinds.state)
            return [Held(kind, leaf.copies) for leaf, kind in zip(transposed, kinds.results, strict=True)]
        each = [
            ReplicaCopies(self.b, self.uniformity, (replica,))._one_while(
                loop, [leaf.only(position) for leaf in initial], kinds.state
            )
            for position, replica in enumerate(self.replicas)
        ]
        # A result that does not vary keeps its initial value.
        return [
            Held(kind, tuple(leaf.copies[0] for leaf in ran) if kind is Differing.VARYING else before.copies)
            for kind, before, ran in zip(kinds.results, initial, zip(*each, strict=True), strict=True)
        ]

    def _one_while(self, loop: Instruction, initial: Value, kinds: Sequence[Differing]) -> Value:
        state = self._as_kinds(initial, kinds)
        shape = TupleShape(tuple(copy.shape for leaf in state for copy in leaf.copies))
        body, condition = loop.called
        builder, results = self._inside(body, state, shape)
        following = self._as_kinds(results, kinds)
        root = builder.tuple(*(copy for leaf in following for copy in leaf.copies))
        test, (more,) = self._inside(condition, state, shape)
        called = (with_own_names(builder.build(root)), with_own_names(test.build(more.copies[0])))
        made = changed(loop, shape=shape, operands=(self._flat_tuple(state),), called=called)
        self.b.instructions.append(made)
        return _regrouped(self.b, made, state)

    def _conditional(self, instruction: Instruction, operands: list[Value]) -> Value:
        (choice,), *arguments = operands
        if choice.kind is not Differing.VARYING or len(self.replicas) == 1:
            return self._one_conditional(instruction, choice, arguments)
        each = []
        for position, replica in enumerate(self.replicas):
            own = [[leaf.only(position) for leaf in value] for value in arguments]
            copies = ReplicaCopies(self.b, self.uniformity, (replica,))
            each.append(copies._one_conditional(instruction, choice.only(position), own))
        return [Held(Differing.VARYING, tuple(leaf.copies[0] for leaf in leaves)) for leaves in zip(*each, strict=True)]

    def _one_conditional(self, instruction: Instruction, choice: Held, arguments: list[Value]) -> Value:
        kinds = self.uniformity.after(
            instruction, [(choice.kind,), *(tuple(leaf.kind for leaf in value) for value in arguments)]
        )
        tuples, called = [], []
        results: Value = []
        for branch, value in zip(instruction.called, arguments, strict=True):
            operand = self._flat_tuple(value)
            builder, found = self._inside(branch, value, operand.shape)
            results = self._as_kinds(found, kinds)
            root = builder.tuple(*(copy for leaf in results for copy in leaf.copies))
            tuples.append(operand)
            called.append(with_own_names(builder.build(root)))
        made = changed(instruction, shape=called[0].root.shape, operands=(choice.of(0), *tuples), called=tuple(called))
        self.b.instructions.append(made)
        return _regrouped(self.b, made, results)

    def _inside(self, computation: Computation, value: Value, shape: AnyShape) -> tuple[Builder, Value]:
        """A computation's copies in a builder of its own, whose only parameter has all copies of a value."""
        builder = Builder(computation.name)
        inner = _regrouped(builder, builder.parameter_of(shape), value)
        found = ReplicaCopies(builder, self.uniformity, self.replicas).run(computation, [inner])
        return builder, found[computation.root]

    def _flat_tuple(self, value: Value) -> Instruction:
        return self.b.tuple(*(copy for leaf in value for copy in leaf.copies))

    def _as_kinds(self, value: Value, kinds: Sequence[Differing]) -> Value:
        """The leaves with a copy for each replica where the kind requires it."""
        assert all(leaf.kind <= kind for leaf, kind in zip(value, kinds, strict=True))
        return [
            Held(
                kind,
                tuple(leaf.of(position) for position in range(len(self.replicas) if kind is Differing.VARYING else 1)),
            )
            for leaf, kind in zip(value, kinds, strict=True)
        ]


def _regrouped(b: Builder, flat: Instruction, like: Value) -> Value:
    """The elements of a flat tuple, as leaves with as many copies as those of `like`."""
    value, index = [], 0
    for leaf in like:
        copies = tuple(b.get_tuple_element(flat, index + position) for position in range(len(leaf.copies)))
        value.append(Held(leaf.kind, copies))
        index += len(copies)
    return value


def _parted(instruction: Instruction) -> ConfigurationError:
    return ConfigurationError(
        f"Expected all replicas to execute each queue operation and collective. Received: {target_of(instruction)} "
        f"({instruction.op_name or instruction.name}) in a loop or a branch whose condition differs between replicas. "
        f"Make the condition the same on all of them (cross_replica_sum), or mark it with "
        f"cross_replica_ops.assume_equal_across_replicas."
    )
