"""The state of a training step that replicas share, and the state that each has its own copy of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.module import topological
from engine.partition.marks import Cut
from engine.partition.uniformity import is_ordered
from engine.passes.loops.rebuilding import with_own_names


@frozen
class Replicated:
    """A step of several replicas, micro-batches or both.

    Parameters and results have the numbers of the original step's; a result that differs between replicas is replica
    0's. Feeds have the rows of all micro-batches (a scalar becomes a vector), if there are several. New variables come
    after them, [replicas, ...]: the replicas' own values of the variables numbered `rows`.
    """

    module: Module
    roles: list[str]
    rows: tuple[int, ...]


def replicated(
    entry: Builder,
    module: Module,
    roles: Sequence[str],
    results: Sequence[Instruction],
    moved: Mapping[int, Instruction],
) -> Replicated:
    """The step of an entry that is complete but for its root, given its results.

    `moved` has the new rows of variables by their numbers, in the order of the parameters of the rows.
    """
    root, parameters = entry.tuple(*results, *moved.values()), len(module.entry.parameters)
    aliases = {**module.aliases, **{parameters + k: len(results) + k for k in range(len(moved))}}
    made = Module(module.name, with_own_names(entry.build(root)), aliases)
    return Replicated(made, [*roles, *["variable"] * len(moved)], tuple(moved))


def variables_of_replicas(
    module: Module,
    parts: Cut,
    replicas: int,
    metrics: Collection[int],
    random: Collection[int],
    names: Mapping[int, str],
) -> tuple[int, ...]:
    """The numbers of the variables that the gradient part updates and of which each replica has a row.

    A metric that is only added to is shared, so it is exact over all replicas; so are the states `random`, from
    which replicas draw one after another. Of all other variables (moving statistics, counts of steps) each replica has
    a row. Raises ConfigurationError for metrics that are updated otherwise.
    """
    found = []
    for number, value in parts.moving.items() if replicas > 1 else ():
        parameter = module.entry.parameters[number]
        if is_ordered(value.operands[0] if value.opcode == "get-tuple-element" else value):
            continue  # a token
        if number in metrics:
            check_sum(parameter, value, names.get(number, f"parameter {number}"), replicas)
        elif number not in random:
            found.append(number)
    return tuple(found)


def check_sum(parameter: Instruction, value: Instruction, name: str, replicas: int) -> None:
    """Raises ConfigurationError for a metric whose new value is no sum with the old one."""
    if not _is_sum(parameter, value):
        raise _refused(name, replicas)


def _is_sum(parameter: Instruction, value: Instruction) -> bool:
    """Whether an update adds a term that does not depend on the variable (or leaves it unchanged)."""
    if value is parameter:
        return True
    if value.opcode != "add" or value.operands.count(parameter) != 1:
        return False
    (term,) = (operand for operand in value.operands if operand is not parameter)
    return parameter not in topological([term])


def _refused(name: str, replicas: int) -> ConfigurationError:
    return ConfigurationError(
        f"Expected metrics whose variables are updated by adding to them, which can be summed over replicas. Received: "
        f"{name!r}, which is updated otherwise, with {replicas} replicas. Write the metric with assign_add (a sum and "
        f"a count), leave it out of the step, or set auto_select_ipus = 1."
    )
