"""Programs whose replicas are in several processes: their collectives continue in calls of the host."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.host_functions import HostFunction
from engine.ir import Instruction, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import HOST_FUNCTION
from engine.partition.marks import is_total


@dataclass(frozen=True, slots=True)
class Processes:
    """The `count` processes of a program, of which this is number `index`. Each has as many replicas.

    `all_reduce` gives the sums of its operands over the processes, `reduce_gradients` does so for gradients, perhaps
    rounded; `all_gather` gives the [count, ...] values of its one operand.
    """

    count: int
    index: int
    all_reduce: HostFunction
    reduce_gradients: HostFunction
    all_gather: HostFunction

    def summed(self, b: Builder, values: Sequence[Instruction]) -> list[Instruction]:
        """The sums of values over the processes, in one call."""
        return _call(b, self.all_reduce, values, [value.array_shape for value in values])

    def gathered(self, b: Builder, value: Instruction) -> Instruction:
        """[count, ...]: a value of each process."""
        shape = value.array_shape
        return _call(b, self.all_gather, [value], [shape.with_dimensions((self.count, *shape.dimensions))])[0]

    def reduced(self, b: Builder, marks: Mapping[Instruction, Instruction]) -> dict[Instruction, Instruction]:
        """The sums over the processes of what replaces each mark."""
        found: dict[Instruction, Instruction] = {}
        for function, are_totals in ((self.reduce_gradients, False), (self.all_reduce, True)):
            values = {m: value for m, value in marks.items() if is_total(m) == are_totals or self._together}
            if values and not found.keys() >= values.keys():
                results = _call(b, function, list(values.values()), [value.array_shape for value in values.values()])
                found.update(zip(values, results, strict=True))
        return found

    @property
    def _together(self) -> bool:
        return self.reduce_gradients is self.all_reduce


def _call(
    b: Builder, function: HostFunction, operands: Sequence[Instruction], shapes: Sequence[Shape]
) -> list[Instruction]:
    """The results of a call, which `in_one_order` puts after the previous one."""
    token = b.constant(0, "s32")
    call = b.instruction(
        *("custom-call", TupleShape((*shapes, Shape("s32"))), [*operands, token]),
        custom_call_target=HOST_FUNCTION,
        backend_config=json.dumps({"function": function.key, "name": function.name}),
        custom_call_has_side_effect=False,
        of_processes=True,
    )
    return [b.get_tuple_element(call, index) for index in range(len(shapes))]
