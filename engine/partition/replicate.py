"""Builds a program of R replicas from a program of one: values that differ are copied, all others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.errors import ConfigurationError
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.partition.accumulation_iterations import without_accumulation_iterations
from engine.partition.collectives import stacked, unstacked
from engine.partition.process_order import in_one_order
from engine.partition.processes import Processes
from engine.partition.replica_copies import Held, ReplicaCopies, Value
from engine.partition.replicas import Replicated
from engine.partition.uniformity import Differing, Uniformity
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.dead_code import dead_code
from engine.passes.inline_calls import inline_calls
from engine.passes.loops.rebuilding import with_own_names
from engine.passes.run_passes import Pass, run_passes
from engine.passes.simplify_shapes import simplify_shapes

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
    replicated = _Replication(run_passes(module, BEFORE), roles, uniformity, names or {}).run()
    ordered = replicated.module if processes is None else in_one_order(replicated.module)
    return Replicated(run_passes(ordered, AFTER), replicated.roles, replicated.rows)


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
        moved = [self._moved(results[self.module.aliases[number]]) for number in rows]
        root = self.entry.tuple(*(result.copies[0] for result in results), *moved)
        aliases = dict(self.module.aliases)
        aliases.update({len(old) + k: len(results) + k for k in range(len(rows))})
        computation = with_own_names(self.entry.build(root))
        roles = [*self.roles, *["variable"] * len(rows)]
        return Replicated(Module(self.module.name, computation, aliases), roles, rows)

    def _rows(self, number: int, variable: Instruction) -> Held:
        """The replicas' own values of a variable: the rows of a new parameter."""
        shape = variable.array_shape
        parameter = self.entry.parameter_of(shape.with_dimensions((self.replicas, *shape.dimensions)))
        parameter.name, parameter.op_name = f"{variable.name}.rows", self.names.get(number, variable.op_name)
        copies = tuple(unstacked(self.entry, parameter, replica) for replica in range(self.replicas))
        return Held(Differing.VARYING, copies)

    def _moved(self, held: Held) -> Instruction:
        return stacked(self.entry, [held.of(replica) for replica in range(self.replicas)])
