"""Builds from a training step one that takes many micro-batches, reduces their gradients and updates once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from engine.errors import ConfigurationError
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.ir.device_operations import OUTFEED, target_of
from engine.ir.outlining import has_outlined_calls
from engine.partition.accumulation import Accumulation
from engine.partition.batch_norm_groups import statistics
from engine.partition.collectives import unstacked
from engine.partition.instruction_copies import InstructionCopies, add_copy
from engine.partition.loop import MicroBatchLoop, SingleMicroBatch
from engine.partition.loop_state import Loop
from engine.partition.marks import Cut, cut
from engine.partition.metric_totals import with_totals
from engine.partition.process_order import in_one_order
from engine.partition.processes import Processes
from engine.partition.replicas import Kind, Replicated, kinds_of
from engine.partition.taken_branches import up_to
from engine.passes.dead_code import dead_code
from engine.passes.factored_derivatives import factored_derivatives
from engine.passes.inline_calls import inline_calls, inline_other_calls
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.pass_list import FLAT_LOOP_STATES
from engine.passes.run_passes import Pass, run_passes
from engine.passes.simplify_shapes import simplify_shapes

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
    names: Mapping[int, str] | None = None,
    processes: Processes | None = None,
    training: bool = True,
) -> Replicated:
    """The step that makes one update from `accumulation.micro_batches` of the batches of `module`.

    `once` and `metrics` are the numbers of parameters that belong to the optimizer, and to metrics; `names` are names
    of variables, for messages. With `processes` gradients and metrics are summed over them, too. A step that is not
    `training` may have no gradients. Raises ConfigurationError for steps that cannot be cut at their gradients, and for
    metrics that replicas cannot share.
    """
    made = partial(_repeated, roles, accumulation, once, metrics, names or {}, processes, training)
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
    names: Mapping[int, str],
    processes: Processes | None,
    training: bool,
    module: Module,
) -> Replicated:
    _check_statistics(module)
    if processes is not None:
        module = with_totals(module, metrics, names, accumulation.replicas * processes.count)
    parts = cut(module, roles, once, names, training=training)
    kinds = kinds_of(module, parts, accumulation.replicas, metrics, names)
    repetition = Repetition(module, roles, accumulation, parts, kinds, processes)
    loop = SingleMicroBatch if accumulation.micro_batches == 1 else MicroBatchLoop
    return repetition.run(loop(repetition.entry, module, roles, accumulation, parts))


def _check_statistics(module: Module) -> None:
    outside = set(module.entry.instructions)
    inner = [i for i in statistics(module) if i not in outside]
    if inner:
        raise ConfigurationError(
            f"Expected batch normalisation over several replicas outside of loops and branches. Received: "
            f"{inner[0].op_name or inner[0].name} inside one. Set "
            f"norms.experimental.distributed_batch_norm_replica_group_size = 1, or normalise outside of it."
        )


class Repetition:
    """Builds the new entry computation: parameters, loop, update part."""

    def __init__(
        self,
        module: Module,
        roles: Sequence[str],
        accumulation: Accumulation,
        parts: Cut,
        kinds: dict[int, Kind],
        processes: Processes | None = None,
    ) -> None:
        self.module, self.roles, self.accumulation, self.parts = module, roles, accumulation, parts
        self.processes = processes
        self.rows = tuple(number for number, kind in kinds.items() if kind == "rows")
        self.repeats_outputs = False
        """Whether outputs of the update part, too, have a leading axis of all micro-batches."""
        self.entry = Builder(module.entry.name)

    def run(self, loop: Loop) -> Replicated:
        """The step around a loop that has been built for `entry`."""
        old = self.module.entry.parameters
        parameters = [self.entry.parameter_of(self._parameter_shape(p)) for p in old]
        for new, parameter in zip(parameters, old, strict=True):
            new.name, new.op_name = parameter.name, parameter.op_name
        rows = {number: self.entry.parameter_of(self._rows_shape(number)) for number in self.rows}
        loop.run(parameters, rows)
        known = dict(zip(old, parameters, strict=True))
        marks = loop.reduced if self.processes is None else self.processes.reduced(self.entry, loop.reduced)
        copies = InstructionCopies(self.entry, {**known, **marks, **loop.last})
        if self.accumulation.replicas > 1:
            self._enqueue_for_replicas(copies)
        aliases, results = self.module.aliases, {}
        for number, state in loop.moved.items():
            # The host reads replica 0's row.
            results[aliases[number]] = unstacked(self.entry, state, 0) if number in rows else state
        for number, value in self.parts.updates.items():
            results[aliases[number]] = copies.of(value)
        for index, value in self.parts.outputs.items():
            results[index] = copies.of(value)
            if self.repeats_outputs and value not in loop.last:
                dimensions = value.array_shape.dimensions
                leading, kept = (self.accumulation.micro_batches, *dimensions), range(1, 1 + len(dimensions))
                results[index] = self.entry.broadcast(results[index], leading, tuple(kept))
        ordered = [results[index] for index in range(len(results))]
        new_aliases = {len(old) + k: len(ordered) + k for k in range(len(rows))}
        root = self.entry.tuple(*ordered, *(loop.moved[number] for number in rows))
        computation = with_own_names(self.entry.build(root))
        roles = [*self.roles, *["variable"] * len(rows)]
        module = Module(self.module.name, computation, {**aliases, **new_aliases})
        return Replicated(module if self.processes is None else in_one_order(module), roles, self.rows)

    def _enqueue_for_replicas(self, copies: InstructionCopies) -> None:
        """Adds each outfeed that updates depend on once for each replica: each enqueues, as on a chip."""
        for outfeed in up_to(self.parts.updates.values(), copies.known()):
            if target_of(outfeed) != OUTFEED or outfeed in copies.known():
                continue
            *leaves, token = [copies.of(operand) for operand in outfeed.operands]
            for _ in range(self.accumulation.replicas):
                call = add_copy(self.entry, outfeed, [*leaves, token])
                token = call if isinstance(call.shape, Shape) else self.entry.get_tuple_element(call, 0)
            copies.stand_for(outfeed, call)

    def _parameter_shape(self, parameter: Instruction) -> Shape:
        shape = parameter.array_shape
        if self.roles[parameter["parameter_number"]] != "feed":
            return shape
        first, *others = shape.dimensions or (1,)
        return shape.with_dimensions((first * self.accumulation.micro_batches, *others))

    def _rows_shape(self, number: int) -> Shape:
        shape = self.module.entry.parameters[number].array_shape
        return shape.with_dimensions((self.accumulation.replicas, *shape.dimensions))
