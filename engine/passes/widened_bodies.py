"""Bodies on f16 rewritten to bodies on f32."""

from __future__ import annotations

import numpy as np

from engine.ir import AnyShape, Computation, Instruction, TupleShape

HALF, WIDE = "f16", "f32"


class WidenedBodies:
    """Scalar computations with f32 in place of f16, built once each."""

    def __init__(self) -> None:
        self._made: dict[Computation, Computation] = {}

    def of(self, body: Computation) -> Computation:
        """The body on f32."""
        if body not in self._made:
            self._made[body] = self._widened(body)
        return self._made[body]

    def _widened(self, body: Computation) -> Computation:
        new: dict[Instruction, Instruction] = {}
        for instruction in body.instructions:
            attributes = dict(instruction.attributes)
            if instruction.opcode == "constant" and instruction.array_shape.element_type == HALF:
                attributes["literal"] = instruction["literal"].astype(np.float32)
            new[instruction] = Instruction(
                instruction.name,
                instruction.opcode,
                wide_shape(instruction.shape),
                tuple(new[operand] for operand in instruction.operands),
                attributes,
                tuple(self.of(called) for called in instruction.called),
                instruction.op_name,
            )
        return Computation(f"{body.name}.{WIDE}", list(new.values()), new[body.root])


def wide_shape(shape: AnyShape) -> AnyShape:
    """The shape with f32 in place of f16."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(wide_shape(element) for element in shape.elements))
    return shape.with_type(WIDE) if shape.element_type == HALF else shape
