"""Builds a program of R replicas from a program of one: values that differ are copied, all others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.errors import ConfigurationError, StepCountError
from engine.ir import Computation, Instruction, Module
from engine.ir.builder import Builder
from engine.ir.device_operations import ACCUMULATION_ITERATION, config_of, target_of
from engine.ir.trip_counts import TripCounts
from engine.partition.collectives import stacked, unstacked
from engine.partition.process_order import in_one_order
from engine.partition.processes import Processes
from engine.partition.replica_copies import Held, ReplicaCopies, Value
from engine.partition.replicas import Replicated, replicated
from engine.partition.uniformity import Differing, Uniformity
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.constant_folding import constant_folding
from engine.passes.dead_code import dead_code
from engine.passes.inline_calls import inline_calls
from engine.passes.rewriting import rewrite
from engine.passes.run_passes import Pass, run_passes
from engine.passes.simplify_arithmetic import simplify_arithmetic
from engine.passes.simplify_shapes import simplify_shapes


def without_accumulation_iterations(module: Module) -> Module:
    """The module without marks.

    Raises StepCountError for gradients that are accumulated outside of a loop, or in one whose number of iterations
    is known and not a multiple of the number of batches in an update.
    """
    found = [i for i in module.instructions() if _is_mark(i)]
    if not found:
        return module
    # TensorFlow's conditions are recognised only once simplified.
    plain = run_passes(module, (inline_calls, constant_folding, simplify_arithmetic))
    _check(plain.entry, None, TripCounts(plain), set())
    return rewrite(module, lambda _, each: each.operands[0] if _is_mark(each) else None)


def _is_mark(instruction: Instruction) -> bool:
    return target_of(instruction) == ACCUMULATION_ITERATION


def _check(computation: Computation, loop: Instruction | None, counts: TripCounts, seen: set[Computation]) -> None:
    """Checks the marks of a computation that runs in each iteration of `loop`, or outside of all loops."""
    for instruction in computation.instructions:
        if _is_mark(instruction):
            batches = config_of(instruction)["num_mini_batches"]
            if loop is None:
                raise StepCountError(
                    f"Expected gradient accumulation inside a training loop. Received: gradients of {batches} mini "
                    f"batches that are accumulated outside of any loop. Put the step into ipu.loops.repeat or a "
                    f"`for _ in tf.range(n)` in the tf.function."
                )
            iterations = counts.iterations(loop)
            if iterations is not None and iterations % batches:
                nearest = max(1, round(iterations / batches)) * batches
                raise StepCountError(
                    f"Expected a number of iterations that is a multiple of the number of mini batches. Received: "
                    f"Detected a gradient accumulation operation with {batches} number of mini batches inside a loop "
                    f"with {iterations} iterations. Nearest: {nearest} iterations."
                )
        for called in instruction.called:
            inside = instruction if instruction.opcode == "while" else loop
            if called not in seen:
                seen.add(called)
                _check(called, inside, counts, seen)


BEFORE: tuple[Pass, ...] = (without_accumulation_iterations, inline_calls, dead_code)
AFTER: tuple[Pass, ...] = (inline_calls, common_subexpressions, simplify_shapes, dead_code)


def replicate(
    module: Module,
    roles: Sequence[str],
    replicas: int,
    names: Mapping[int, str] | None = None,
    processes: Processes | None = None,
) -> Replicated:
    """The program of `replicas` replicas of `module`, which synchronise at collectives.

    Arguments ("feed") and constants are the same for all replicas, elements of infeeds are not: replica r takes each
    R-th, beginning with the r-th. A variable whose new value may differ between replicas has a value for each replica.
    An outfeed enqueues rows [replicas, ...] of all replicas if there are more than one. Replicas draw different
    random numbers where the generator's state is a variable's, the same ones where it is computed from constants and
    arguments. `names` are names of variables, for printouts. With `processes` the replicas belong to one process.
    Raises ConfigurationError for replica groups that do not divide, and for collectives and queues in a loop or branch
    that only some replicas enter; StepCountError for gradients accumulated in a loop with a wrong number of iterations.
    """
    if replicas < 1:
        raise ConfigurationError(f"Expected at least 1 replica. Received: {replicas}. Nearest: 1.")
    uniformity = Uniformity(replicas, processes)
    made = _Replication(run_passes(module, BEFORE), roles, uniformity, names or {}).run()
    ordered = made.module if processes is None else in_one_order(made.module)
    return replace(made, module=run_passes(ordered, AFTER))


class _Replication:
    """Builds the new entry computation."""

    def __init__(self, module: Module, roles: Sequence[str], uniformity: Uniformity, names: Mapping[int, str]) -> None:
        self.module, self.roles, self.replicas, self.names = module, roles, uniformity.replicas, names
        self.uniformity = uniformity
        self.entry = Builder(module.entry.name)

    def run(self) -> Replicated:
        kinds = self.uniformity.variables(self.module, self.roles)
        varying = (number for number, kind in kinds.items() if kind is Differing.VARYING)
        rows = tuple(varying) if self.replicas > 1 else ()
        old = self.module.entry.parameters
        held: list[Value] = []
        for parameter in old:
            new = self.entry.parameter_of(parameter.array_shape)
            new.name, new.op_name = parameter.name, parameter.op_name
            held.append([Held(kinds[parameter["parameter_number"]], (new,))])
        for number in rows:
            held[number] = [self._rows(number, old[number])]
        copies = ReplicaCopies(self.entry, self.uniformity, tuple(range(self.replicas)))
        values = copies.run(self.module.entry, held)
        results = [values[result][0] for result in self.module.results]
        moved = {number: self._moved(results[self.module.aliases[number]]) for number in rows}
        return replicated(self.entry, self.module, self.roles, [result.copies[0] for result in results], moved)

    def _rows(self, number: int, variable: Instruction) -> Held:
        """The replicas' own values of a variable: the rows of a new parameter."""
        shape = variable.array_shape
        parameter = self.entry.parameter_of(shape.with_dimensions((self.replicas, *shape.dimensions)))
        parameter.name, parameter.op_name = f"{variable.name}.rows", self.names.get(number, variable.op_name)
        copies = tuple(unstacked(self.entry, parameter, replica) for replica in range(self.replicas))
        return Held(Differing.VARYING, copies)

    def _moved(self, held: Held) -> Instruction:
        return stacked(self.entry, [held.of(replica) for replica in range(self.replicas)])
