"""Builds a program of R replicas from a program of one: values that differ are copied, all others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from engine.errors import ConfigurationError, StepCountError
from engine.ir import Computation, Instruction, Module
from engine.ir.builder import Builder
from engine.ir.device_operations import ACCUMULATION_ITERATION, config_of, target_of
from engine.ir.trip_counts import TripCounts
from engine.partition.collectives import stacked, total, unstacked
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
    summed: Set[int] = frozenset(),
) -> Replicated:
    """The program of `replicas` replicas of `module`, which synchronise at collectives.

    Arguments ("feed") and constants are the same for all replicas, elements of infeeds are not: replica r takes each
    R-th, beginning with the r-th. A variable whose new value may differ between replicas has a value for each replica.
    An outfeed enqueues rows [replicas, ...] of all replicas if there are more than one. Replicas draw different
    random numbers where the generator's state is a variable's, the same ones where it is computed from constants and
    arguments. `names` are names of variables, for printouts. With `processes` the replicas belong to one process.
    The variables numbered `summed` show the sum of the replicas' values, which is also a row before these.
    Raises ConfigurationError for replica groups that do not divide, and for collectives and queues in a loop or branch
    that only some replicas enter; StepCountError for gradients accumulated in a loop with a wrong number of iterations.
    """
    if replicas < 1:
        raise ConfigurationError(f"Expected at least 1 replica. Received: {replicas}. Nearest: 1.")
    uniformity = Uniformity(replicas, processes, summed)
    made = _with_replicas(run_passes(module, BEFORE), roles, uniformity, names or {}, summed)
    ordered = made.module if processes is None else in_one_order(made.module)
    return replace(made, module=run_passes(ordered, AFTER))


def _with_replicas(
    module: Module, roles: Sequence[str], uniformity: Uniformity, names: Mapping[int, str], summed: Set[int]
) -> Replicated:
    """The copies of the instructions for all replicas, in a new entry computation."""
    entry, replicas, old = Builder(module.entry.name), uniformity.replicas, module.entry.parameters
    kinds = uniformity.variables(module, roles)
    held: list[Value] = []
    for number, parameter in enumerate(old):
        new = entry.parameter_of(parameter.array_shape)
        new.name, new.op_name = parameter.name, parameter.op_name
        held.append([Held(kinds[number], (new,))])
    varying = [number for number, kind in kinds.items() if kind is Differing.VARYING]
    rows = [number for number in varying if replicas > 1 or number in summed]
    for number in rows:
        # The replicas' own values of a variable are the rows of a new parameter.
        shape = old[number].array_shape
        first = int(number in summed)
        new = entry.parameter_of(shape.with_dimensions((first + replicas, *shape.dimensions)))
        new.name, new.op_name = f"{old[number].name}.rows", names.get(number, old[number].op_name)
        copies = tuple(unstacked(entry, new, first + replica) for replica in range(replicas))
        held[number] = [Held(Differing.VARYING, copies)]
    values = ReplicaCopies(entry, uniformity, tuple(range(replicas))).run(module.entry, held)
    of_results = [values[result][0] for result in module.results]
    results, moved = [result.copies[0] for result in of_results], {}
    for number in rows:
        index = module.aliases[number]
        shown = [of_results[index].of(k) for k in range(replicas)]
        if number in summed:
            results[index] = total(entry, shown, uniformity.processes)
            shown = [results[index], *shown]
        moved[number] = stacked(entry, shown)
    return replicated(entry, module, roles, results, moved)
