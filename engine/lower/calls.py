"""Lowers `call`: a body is lowered once, and each call has copies of its compute sets with buffers of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from engine.ir import Instruction
from engine.ir.origin import Origin
from engine.lower.context import Context, LoweredBody, Value, lowering
from engine.lower.control import lower_computation
from engine.lower.state import leaves
from engine.program.program import Buffer, ComputeSet


@lowering("call")
def lower_call(context: Context, instruction: Instruction) -> Value:
    """Copies the compute sets of the body, which has no control flow: passes over modules leave calls of such bodies
    alone.
    """
    operands = [context.buffer(operand) for operand in instruction.operands]
    partitions = tuple(context.partitions.get(operand) for operand in operands)
    are_variables = tuple(operand.kind == "variable" for operand in operands)
    key: Hashable = instruction.called[0], partitions, are_variables, context.rows
    if key not in context.bodies:
        context.bodies[key] = _lowered(context, instruction, operands)
    return _Call(context, instruction, operands).run(context.bodies[key])


def _lowered(context: Context, instruction: Instruction, operands: list[Buffer]) -> LoweredBody:
    """The body, lowered for operands that are partitioned like these."""
    (body,) = instruction.called
    around, context.compute_sets = context.compute_sets, []
    parameters = []
    for operand, parameter in zip(operands, body.parameters, strict=True):
        kind = operand.kind if operand.kind == "variable" else "arena"
        parameters.append(Buffer(parameter.name, parameter.array_shape, kind))
        if operand in context.partitions:
            context.partitions[parameters[-1]] = context.partitions[operand]
    value = lower_computation(context, body, parameters, context.iteration)
    made, context.compute_sets = context.compute_sets, around
    found = {b: context.partitions[b] for b in leaves(value) if b in context.partitions}
    return LoweredBody(parameters, made, value, found)


class _Call:
    """One call: the body's compute sets with the buffers of the operands, and new ones for all that it computes."""

    def __init__(self, context: Context, instruction: Instruction, operands: list[Buffer]) -> None:
        self.context, self.instruction, self.operands = context, instruction, operands
        self.buffers: dict[Buffer, Buffer] = {}
        self.scope = instruction.op_name.rpartition("/")[0]
        self.origins: dict[Origin, Origin] = {}

    def run(self, body: LoweredBody) -> Value:
        self.buffers = dict(zip(body.parameters, self.operands, strict=True))
        for compute_set in body.compute_sets:
            self.context.emit(self._copy(compute_set))
        self.context.partitions |= {self._buffer(b): partition for b, partition in body.partitions.items()}
        return _with_buffers(body.value, self._buffer)

    def _copy(self, compute_set: ComputeSet) -> ComputeSet:
        return replace(
            compute_set.with_buffers(self._buffer),
            name=f"{self.instruction.name}.{compute_set.name}",
            op_name=self._op_name(compute_set.op_name),
            origins={number: self._origin(origin) for number, origin in compute_set.origins.items()},
            of_body=compute_set.of_body or compute_set,
        )

    def _op_name(self, op_name: str) -> str:
        """The operation's name inside the scope of the call."""
        return f"{self.scope}/{op_name.rpartition('PartitionedCall/')[2]}" if self.scope else op_name

    def _origin(self, origin: Origin) -> Origin:
        if origin not in self.origins:
            self.origins[origin] = replace(origin, op_name=self._op_name(origin.op_name))
        return self.origins[origin]

    def _buffer(self, buffer: Buffer) -> Buffer:
        if buffer.kind == "constant":
            return buffer
        if buffer not in self.buffers:
            self.buffers[buffer] = replace(buffer)
        return self.buffers[buffer]


def _with_buffers(value: Value, change: Callable[[Buffer], Buffer]) -> Value:
    return change(value) if isinstance(value, Buffer) else tuple(_with_buffers(each, change) for each in value)
