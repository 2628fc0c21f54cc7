"""Lowers a whole module into a Program."""

from __future__ import annotations

import numpy as np

from engine.ir import Module, Shape
from engine.ir.floating_point import EXCEPTIONS
from engine.ir.opcodes import opcodes_that, require_registered
from engine.lower import (  # noqa: F401  (they register their lowerings)
    basics,
    calls,
    control,
    conversions,
    convolution,
    custom_calls,
    dot,
    dynamic_slices,
    fourier,
    fusion,
    indexing,
    interpolation,
    linear_algebra,
    queues,
    random,
    select_and_scatter,
    sort,
    windows,
)
from engine.lower.context import DEFERRED, LOWERINGS, Context
from engine.program.copies import copy_buffer
from engine.program.program import Buffer, Program

require_registered(LOWERINGS, "lowering", opcodes_that(lambda row: row.execution == "lowering"))


def lower_module(
    module: Module, roles: list[str], constants: dict[int, np.ndarray], exceptions: frozenset[str] = frozenset()
) -> Program:
    """The compute sets of one step, in the order of the entry's instructions, before all passes over programs.

    `exceptions` are the names of the floating-point exceptions that the program will check for. Raises
    UnsupportedOperation for an instruction that has no lowering.
    """
    context = Context(module, roles, constants)
    for parameter in module.entry.parameters:
        context.value(parameter)
    for instruction in module.entry.instructions:
        if instruction.opcode not in DEFERRED:
            context.value(instruction)
    results = [context.buffer(r) for r in module.results]
    updated = {result: parameter for parameter, result in module.aliases.items()}
    outputs = [k for k in range(len(results)) if k not in updated]
    shapes: list[Shape] = [module.results[k].array_shape for k in outputs]
    kept = _snapshots(context, [results[k] for k in outputs])
    _update_variables(context, results, updated)
    return Program(
        *(module.name, context.compute_sets, context.feeds, context.variables, kept, shapes),
        *(context.marks, context.regions, context.queues),
        tuple(name for name in EXCEPTIONS if name in exceptions),
        call=context.call,
    )


def _snapshots(context: Context, outputs: list[Buffer]) -> list[Buffer]:
    """The outputs; outputs that are variables' old values are copied before the update."""
    kept = []
    for buffer in outputs:
        if buffer.kind == "variable":
            copied = Buffer(f"{buffer.name}.old", buffer.shape)
            copy_buffer(context, copied.name, buffer, copied)
            buffer = copied
        kept.append(buffer)
    return kept


def _update_variables(context: Context, results: list[Buffer], updated: dict[int, int]) -> None:
    """Copies new values into the variables, after all readers of the old ones."""
    pending: list[tuple[Buffer, Buffer]] = []
    parameters = context.module.entry.parameters
    for result, parameter in updated.items():
        source = results[result]
        target = context.variables.setdefault(parameter, context.buffer(parameters[parameter]))
        if source is target:
            continue
        if source.kind == "variable":
            # The source may be overwritten before it is copied: two variables can be swapped.
            copied = Buffer(f"{target.name}.new", target.shape)
            copy_buffer(context, copied.name, source, copied)
            source = copied
        pending.append((source, target))
    for source, target in pending:
        copy_buffer(context, f"{target.name}.update", source, target, elidable=True)
