"""Cuts a training step where its gradients enter the optimizer.

A mark is a custom call that returns its operand, a gradient. The gradient part is all that marks need and all that
differs from micro-batch to micro-batch; the update part computes new variables from the marks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.ir import Instruction, Module
from engine.ir.module import topological
from engine.ir.value_checks import CHECK_TOKEN

GRADIENT = "ipu.gradient"
"""The target of a mark's custom call. Its backend_config is JSON: the names "variable" and "accumulator" (a type), and
whether the operand is a "total", which is summed for any reduction of gradients."""


def is_mark(instruction: Instruction) -> bool:
    """Whether an instruction is a mark."""
    return instruction.opcode == "custom-call" and instruction.get("custom_call_target") == GRADIENT


def mark_config(variable: str, accumulator: str | None, total: bool = False) -> str:
    """The backend_config of a mark: the gradient's variable, and the accumulator's element type unless it is the same.

    A `total` is not a gradient but another value that is summed over micro-batches.
    """
    return json.dumps({"variable": variable, "accumulator": accumulator, "total": total})


def variable_of(mark: Instruction) -> str:
    """The name of the variable whose gradient is marked."""
    return str(json.loads(mark["backend_config"])["variable"])


def accumulator_of(mark: Instruction) -> str:
    """The element type in which a gradient is accumulated."""
    return json.loads(mark["backend_config"])["accumulator"] or mark.array_shape.element_type


def is_total(mark: Instruction) -> bool:
    """Whether the mark's operand is summed for any reduction of gradients."""
    return bool(json.loads(mark["backend_config"])["total"])


@frozen
class Cut:
    """The two parts of a step; parameters and results have their numbers in the module.

    `moving` has the new value of each variable that the gradient part updates, `updates` of each other variable;
    `outputs` has the results that belong to no variable, `last` the values of the gradient part from which outputs are
    computed.
    """

    marks: tuple[Instruction, ...]
    moving: dict[int, Instruction]
    updates: dict[int, Instruction]
    outputs: dict[int, Instruction]
    last: tuple[Instruction, ...]


def cut(
    module: Module, roles: Sequence[str], once: Collection[int], names: Mapping[int, str], *, training: bool = True
) -> Cut:
    """Cuts a module whose calls have been inlined.

    `once` are the numbers of parameters that only the optimizer updates, with or without a gradient (its count of
    steps); `names` are names of variables, for messages. A step without marks is allowed only if not `training`. Raises
    ConfigurationError for steps that cannot be cut.
    """
    marks = _marks(module, training)
    after = users_of(module, marks)
    _refuse_gradients_after_updates(marks, after)
    results = module.results
    moving = {n: results[k] for n, k in module.aliases.items() if n not in once and results[k] not in after}
    numbers = {p: p["parameter_number"] for p in module.entry.parameters}
    tokens = {p for p, n in numbers.items() if names.get(n, p.op_name).startswith(CHECK_TOKEN)}
    sources = [p for p, n in numbers.items() if (n in moving and p not in tokens) or roles[n] == "feed"]
    varying = users_of(module, sources, beyond_marks=False)
    updating = [results[k] for n, k in module.aliases.items() if n not in moving]
    for token in tokens.intersection(_needed(updating, varying)):  # checks of the optimizer's own values
        moving.pop(numbers[token], None)
    updates = {n: results[k] for n, k in module.aliases.items() if n not in moving}
    for number, value in updates.items():
        found = frontier([value], varying)
        if found:
            raise _update_from_batch(names.get(number, f"parameter {number}"), found[0])
    aliased = set(module.aliases.values())
    outputs = {k: result for k, result in enumerate(results) if k not in aliased}
    return Cut(tuple(marks), moving, updates, outputs, tuple(frontier(outputs.values(), varying)))


def _marks(module: Module, training: bool) -> list[Instruction]:
    marks = [i for i in module.entry.instructions if is_mark(i)]
    inner = [i for c in module.computations() if c is not module.entry for i in c.instructions if is_mark(i)]
    if inner:
        raise ConfigurationError(
            f"Expected the optimizer to be applied once in each step. Received: gradients that are applied inside a "
            f"loop or a condition, that of {variable_of(inner[0])!r} first. Apply them outside of it to accumulate "
            f"gradients or to use more than one IPU."
        )
    if training and not marks:
        raise ConfigurationError(
            "Expected a training step that applies gradients with a Keras optimizer. Received: one that applies none. "
            "Call optimizer.apply_gradients in train_step, or set gradient_accumulation_steps_per_replica = 1 and "
            "auto_select_ipus = 1."
        )
    return marks


def users_of(module: Module, sources: Iterable[Instruction], *, beyond_marks: bool = True) -> set[Instruction]:
    """The sources and all instructions that depend on them."""
    found = set(sources)
    for instruction in module.entry.instructions:
        if not beyond_marks and is_mark(instruction):
            continue
        if any(operand in found for operand in instruction.operands):
            found.add(instruction)
    return found


def _refuse_gradients_after_updates(marks: Iterable[Instruction], after: set[Instruction]) -> None:
    late = [mark for mark in marks if mark.operands[0] in after]
    if late:
        raise ConfigurationError(
            f"Expected all gradients of a step to be computed before the first is applied. Received: a step in which "
            f"the gradient of {variable_of(late[0])!r} depends on an update made earlier in the same step (as in a GAN "
            f"that trains both networks in one train_step). Compute all gradients first, or set "
            f"gradient_accumulation_steps_per_replica = 1 and auto_select_ipus = 1."
        )


def frontier(roots: Iterable[Instruction], varying: set[Instruction]) -> list[Instruction]:
    """The values that the roots take from the gradient part, other than through marks."""
    return [i for i in _needed(roots, varying) if i in varying]


def _needed(roots: Iterable[Instruction], varying: set[Instruction]) -> list[Instruction]:
    """The instructions from which the update part computes the roots: its own, and values of the gradient part."""
    return topological(roots, lambda i: i not in varying and not is_mark(i))


def _update_from_batch(variable: str, value: Instruction) -> ConfigurationError:
    return ConfigurationError(
        f"Expected variables to be updated either for each batch or by the optimizer, from gradients alone. Received: "
        f"an update of {variable!r} from gradients or new weights and from {value.opcode} %{value.name} "
        f"({value.op_name or 'no scope'}), which differs from batch to batch. Update it before the optimizer is "
        f"applied, or set gradient_accumulation_steps_per_replica = 1 and auto_select_ipus = 1."
    )
