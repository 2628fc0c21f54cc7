"""Builds from a training step one that takes many micro-batches, reduces their gradients and updates once.

The loop over the micro-batches of one update: each iteration is the gradient part of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from engine.errors import ConfigurationError
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.ir.outlining import has_outlined_calls
from engine.partition.accumulation import Accumulation
from engine.partition.batch_norm_groups import is_statistic, statistics
from engine.partition.collectives import synchronise
from engine.partition.instruction_copies import add_copy, copied
from engine.partition.loop_state import COUNTER, Loop
from engine.partition.marks import cut
from engine.partition.metric_totals import with_totals
from engine.partition.micro_batch import INDEX, MicroBatch
from engine.partition.processes import Processes
from engine.partition.replicas import Replicated, variables_of_replicas
from engine.passes.dead_code import dead_code
from engine.passes.factored_derivatives import factored_derivatives
from engine.passes.inline_calls import inline_calls, inline_other_calls
from engine.passes.pass_list import FLAT_LOOP_STATES
from engine.passes.run_passes import Pass, run_passes
from engine.passes.simplify_shapes import simplify_shapes

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
        f"norms.experimental.distributed_batch_norm_replica_group_size = 1, and synchronized=False in layers."
    )


class MicroBatchLoop(Loop):
    """The loop whose iteration is one micro-batch, or a micro-batch of each of the replicas that normalise together."""

    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the loop over micro-batches, given the entry's parameters and those of the replicas' rows."""
        parts, slots = self.parts, self.slots
        self.add_elements(parameters, rows)
        needed = set(topological([*(m.operands[0] for m in parts.marks), *parts.moving.values(), *parts.last]))
        slots.given = {
            p: self.add(parameters[p["parameter_number"]])
            for p in self.module.entry.parameters
            if p in needed and p["parameter_number"] not in parts.moving
        }
        body = Builder("micro_batch")
        state = body.parameter_of(self.shape)
        elements = dict(enumerate(body.elements(state)))
        iteration = elements[COUNTER]
        micro_batches = [MicroBatch(body, self.accumulation, each) for each in self._indices(body, iteration)]
        of = self._copies(body, elements, micro_batches)
        following = {COUNTER: body.add(iteration, body.constant(1, INDEX))}
        following |= self.following(micro_batches, elements, parts, of)
        iterations = self.accumulation.micro_batches // self.accumulation.together
        self.take_results(self.add_while(body, {**elements, **following}, iterations))

    def _indices(self, body: Builder, iteration: Instruction) -> list[Instruction]:
        """The numbers of the micro-batches of an iteration."""
        together = self.accumulation.together
        if together == 1:
            return [iteration]
        first = body.multiply(iteration, body.constant(together, INDEX))
        return [first, *(body.add(first, body.constant(k, INDEX)) for k in range(1, together))]

    def _copies(
        self, body: Builder, elements: Mapping[int, Instruction], micro_batches: Sequence[MicroBatch]
    ) -> Callable[[int, Instruction], Instruction]:
        """A function that gives the copy of an instruction in the k-th of an iteration's micro-batches."""
        parameters, rows = self.module.entry.parameters, self.rows
        given = {p: elements[slot] for p, slot in self.slots.given.items()}
        feeds = {p for p in given if self.roles[p["parameter_number"]] == "feed"}
        stands = []
        for k, micro_batch in enumerate(micro_batches):
            new = {p: micro_batch.feed(array, p) if p in feeds else array for p, array in given.items()}
            for number, slot in self.slots.states.items():
                state = elements[slot]
                if number in rows:
                    new[parameters[number]] = micro_batch.taken(state, micro_batch.replica)
                elif k == 0:
                    new[parameters[number]] = state
            stands.append(new)
        if len(stands) == 1:
            return lambda _, instruction: copied(body, stands[0], instruction)
        shared = {parameters[n]: value for n, value in self.parts.moving.items() if n not in rows}
        return CopiesTogether(body, stands, shared).of


class SingleMicroBatch(Loop):
    """The only micro-batch of an update, without a loop."""

    def run(self, parameters: Sequence[Instruction], rows: dict[int, Instruction]) -> None:
        """Adds the gradient part, given the entry's parameters; there are no replicas' rows."""
        parts, stands = self.parts, {}
        for old, new in zip(self.module.entry.parameters, parameters, strict=True):
            # A scalar feed is a vector of one element.
            stands[old] = new if new.shape == old.shape else self.entry.reshape(new, ())
        copy = partial(copied, self.entry, stands)
        self.reduced = {mark: copy(mark.operands[0]) for mark in parts.marks}
        self.last = {value: copy(value) for value in parts.last}
        self.moved = {number: copy(value) for number, value in parts.moving.items()}


BEFORE: tuple[Pass, ...] = (inline_calls, dead_code, simplify_shapes, dead_code)
"""Passes that expose marks and updates: TensorFlow puts reshapes around every assignment."""
WITH_BODIES: tuple[Pass, ...] = (inline_other_calls, *BEFORE[1:])
"""Passes for modules whose outlined functions stay calls."""
# After the cut no pass sees a derivative together with its function: derivatives are factored here, as without stages.
# Arrays, not tuples, cross between stages, and weights that loops only read come from the variables, so they are not
# kept for each micro-batch.
BEFORE_STAGES: tuple[Pass, ...] = (inline_calls, dead_code, factored_derivatives, *BEFORE[1:], *FLAT_LOOP_STATES)
"""Passes that bring a step into a form that can be cut into stages."""


def repeat(
    module: Module,
    roles: Sequence[str],
    accumulation: Accumulation,
    *,
    once: Collection[int] = (),
    metrics: Collection[int] = (),
    random: Collection[int] = (),
    names: Mapping[int, str] | None = None,
    processes: Processes | None = None,
    training: bool = True,
) -> Replicated:
    """The step that makes one update from `accumulation.micro_batches` of the batches of `module`.

    `once`, `metrics` and `random` are the numbers of parameters that belong to the optimizer, to metrics, and to random
    generators; `names` are names of variables, for messages. With `processes` gradients and metrics are summed over
    them, too. A step that is not `training` may have no gradients. Raises ConfigurationError for steps that cannot be
    cut at their gradients, and for metrics that replicas cannot share.
    """
    made = partial(_repeated, roles, accumulation, once, metrics, random, names or {}, processes, training)
    if accumulation.together == 1 and has_outlined_calls(module):
        # A cut may need instructions inside of a body.
        with suppress(ConfigurationError):
            return made(run_passes(module, WITH_BODIES))
    return made(run_passes(module, BEFORE))


def _repeated(
    roles: Sequence[str],
    accumulation: Accumulation,
    once: Collection[int],
    metrics: Collection[int],
    random: Collection[int],
    names: Mapping[int, str],
    processes: Processes | None,
    training: bool,
    module: Module,
) -> Replicated:
    _check_statistics(module)
    if processes is not None:
        module = with_totals(module, metrics, names, accumulation.replicas * processes.count)
    parts = cut(module, roles, once, names, training=training)
    rows = variables_of_replicas(module, parts, accumulation.replicas, metrics, random, names)
    loop = SingleMicroBatch if accumulation.micro_batches == 1 else MicroBatchLoop
    return loop(module, roles, accumulation, parts, rows, processes).made()


def _check_statistics(module: Module) -> None:
    outside = set(module.entry.instructions)
    inner = [i for i in statistics(module) if i not in outside]
    if inner:
        raise ConfigurationError(
            f"Expected batch normalisation over several replicas outside of loops and branches. Received: "
            f"{inner[0].op_name or inner[0].name} inside one. Set "
            f"norms.experimental.distributed_batch_norm_replica_group_size = 1, and synchronized=False in layers, or "
            f"normalise outside of it."
        )
