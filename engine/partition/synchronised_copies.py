"""Copies of a gradient part for the micro-batches of several replicas, which synchronise at collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import ConfigurationError
from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.partition.batch_norm_groups import is_statistic
from engine.partition.collectives import synchronise
from engine.partition.instruction_copies import add_copy

Wanted = tuple[int, Instruction]
"""The index of a replica in its group, and an instruction."""


class CopiesTogether:
    """Copies instructions on demand, once for each replica; parameters have replacements already.

    `stands` has these replacements for each replica. `states` has the new values of variables that replicas share, by
    parameter: each replica reads the value that the previous one computed.
    """

    def __init__(
        self,
        builder: Builder,
        stands: Sequence[dict[Instruction, Instruction]],
        states: Mapping[Instruction, Instruction],
    ) -> None:
        self._builder, self._new, self._states = builder, stands, states

    def of(self, index: int, instruction: Instruction) -> Instruction:
        """The copy of an instruction for the replica at index `index`.

        Raises ConfigurationError where a statistic depends on a value that another replica computes from the statistic.
        """
        pending: list[Wanted] = [(index, instruction)]
        begun: set[Wanted] = set()
        while pending:
            wanted = pending[-1]
            if wanted[1] in self._new[wanted[0]]:
                pending.pop()
                continue
            missing = [each for each in self._needed(wanted) if each[1] not in self._new[each[0]]]
            if not missing:
                self._add(wanted)
            elif wanted in begun:
                raise _in_a_circle(wanted[1])
            else:
                pending += missing
            begun.add(wanted)
        return self._new[index][instruction]

    def _needed(self, wanted: Wanted) -> list[Wanted]:
        index, instruction = wanted
        if instruction in self._states:
            return [(index - 1, self._states[instruction])]
        indices = range(len(self._new)) if is_statistic(instruction) else [index]
        return [(each, operand) for each in indices for operand in instruction.operands]

    def _add(self, wanted: Wanted) -> None:
        index, instruction = wanted
        if instruction in self._states:
            self._new[index][instruction] = self._new[index - 1][self._states[instruction]]
        elif is_statistic(instruction):
            (operand,) = instruction.operands
            results = synchronise(self._builder, instruction, [new[operand] for new in self._new])
            for new, result in zip(self._new, results, strict=True):
                new[instruction] = result
        else:
            new = self._new[index]
            new[instruction] = add_copy(self._builder, instruction, [new[operand] for operand in instruction.operands])


def _in_a_circle(instruction: Instruction) -> ConfigurationError:
    return ConfigurationError(
        f"Expected batch normalisation over replicas of values that do not depend on variables which the replicas "
        f"change one after the other. Received: {instruction.op_name or instruction.name}. Set "
        f"norms.experimental.distributed_batch_norm_replica_group_size = 1."
    )
