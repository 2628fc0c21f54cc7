"""Scalars of a loop's body whose value per iteration is known at compile time: those that depend on its count alone."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, Shape
from engine.ir.opcodes import AFFINE, ELEMENTWISE
from engine.lower.context import Context, Iteration
from engine.ops.registry import DEFINITIONS
from engine.program.program import PerIteration

MOST_ITERATIONS = 1 << 16
"""Most iterations for which a table is worth its memory."""
Known = np.ndarray | None


def per_iteration(context: Context, instruction: Instruction) -> PerIteration | None:
    """The values per iteration of an integer or a pred of one element in the loop around it, if they are known."""
    iteration = context.iteration
    if iteration is None or iteration.iterations > MOST_ITERATIONS:
        return None
    values = _Iterations(context, iteration).value(instruction, ())
    return None if values is None else PerIteration(iteration.counter, tuple(values.astype(np.int64).tolist()))


class _Iterations:
    """Evaluates scalars for all iterations at once; `given` are the operands of a fusion's parameters, by parameter."""

    def __init__(
        self, context: Context, iteration: Iteration, given: dict[Instruction, Instruction] | None = None
    ) -> None:
        self.context, self.iteration = context, iteration
        self.given = given or {}
        self.around: _Iterations = self
        self._known: dict[tuple[Instruction, tuple[int, ...]], Known] = {}
        self._inside: dict[Instruction, _Iterations] = {}

    def value(self, instruction: Instruction, path: tuple[int, ...]) -> Known:
        """The part of a value at `path`, one number per iteration."""
        key = (instruction, path)
        if key not in self._known:
            self._known[key] = None  # a value that depends on itself is not known
            self._known[key] = self._value(instruction, path)
        return self._known[key]

    def _value(self, instruction: Instruction, path: tuple[int, ...]) -> Known:
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "parameter":
            return self._given(instruction, path)
        if opcode == "get-tuple-element":
            return self.value(operands[0], (instruction["tuple_index"], *path))
        if opcode == "tuple":
            return self.value(operands[path[0]], path[1:])
        if opcode == "fusion":
            return self._scope(instruction).value(instruction.called[0].root, path)
        if path or not _is_scalar(instruction):
            return None
        if opcode == "constant":
            return np.repeat(instruction["literal"].reshape(-1), self.iteration.iterations)
        if opcode in AFFINE:
            return self.value(operands[0], ())
        if opcode not in ELEMENTWISE or not all(_is_scalar(operand) for operand in operands):
            return None
        known = [self.value(operand, ()) for operand in operands]
        if any(each is None for each in known):
            return None
        result = DEFINITIONS[opcode](instruction, [each for each in known if each is not None])
        return np.asarray(result, instruction.array_shape.dtype)

    def _scope(self, fusion: Instruction) -> _Iterations:
        """The scope inside a fusion, whose computation other fusions may share."""
        if fusion not in self._inside:
            operands = dict(zip(fusion.called[0].parameters, fusion.operands, strict=True))
            self._inside[fusion] = _Iterations(self.context, self.iteration, operands)
            self._inside[fusion].around = self
        return self._inside[fusion]

    def _given(self, parameter: Instruction, path: tuple[int, ...]) -> Known:
        """The value of a parameter of a fusion, of a branch that is being lowered, or of the loop's body."""
        if parameter in self.given:
            return self.around.value(self.given[parameter], path)
        if parameter in self.context.arguments:
            return self.value(self.context.arguments[parameter], path)
        return self._counted(path) if parameter is self.iteration.loop.called[0].parameters[0] else None

    def _counted(self, path: tuple[int, ...]) -> Known:
        """The values of an element of the loop's state that grows by a constant per iteration, without overflow."""
        loop, iterations = self.iteration.loop, self.iteration.iterations
        line = self.context.trip_counts.line(loop, path[0]) if len(path) == 1 else None
        if line is None:
            return None
        first, growth = line
        limits = np.iinfo(loop.tuple_shapes[path[0]].dtype)
        last = first + growth * (iterations - 1)
        if not all(limits.min <= value <= limits.max for value in (first, last)):
            return None
        return (first + growth * np.arange(iterations)).astype(limits.dtype)


def _is_scalar(instruction: Instruction) -> bool:
    shape = instruction.shape
    return isinstance(shape, Shape) and shape.elements == 1 and shape.dtype.kind in "iub"
