"""Categories of the bytes on a tile, as cost reports distinguish them."""

from __future__ import annotations

from engine.profile.names import ACCUMULATOR, SLOT, VARIABLE, buffer_names
from engine.program.program import Buffer, Program, Role

CODE, WEIGHTS, OPTIMIZER_STATE, ACTIVATIONS = "code", "weights", "optimizer state", "activations"
EXCHANGE_BUFFERS, VERTEX_STATE, STREAM_BUFFERS, OTHER = "exchange buffers", "vertex state", "stream buffers", "other"
CATEGORIES = (
    *(CODE, WEIGHTS, OPTIMIZER_STATE, ACTIVATIONS),
    *(EXCHANGE_BUFFERS, VERTEX_STATE, STREAM_BUFFERS, OTHER),
)
"""Every category. "weights" are all variables of a model, statistics, seeds and metrics included. "activations" are all
arrays that a step computes, gradients included. Sums of gradients over micro-batches are optimizer state."""

ROLES_IN_OPTIMIZERS = (Role.SLOT, Role.GRADIENT_SUM, Role.COUNTER)


def categories_of(program: Program, names: dict[Buffer, str]) -> dict[Buffer, str]:
    """The category of every array that compute sets access, and of feeds; `names` are those of `buffer_names`."""
    if any(b.label is not None and b.label.role is None for b in program.variables.values()):
        names = buffer_names(program, labelled=False)
    optimizers = _optimizers(program, names)
    found: dict[Buffer, str] = {b: STREAM_BUFFERS for b in program.feeds.values()}
    found |= {b: _of_variable(b, names.get(b, ""), optimizers) for b in program.variables.values()}
    for compute_set in program.compute_sets:
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer not in found:
                found[span.buffer] = of_array(names.get(span.buffer, "")) if span.buffer.kind == "arena" else OTHER
    return found


def of_array(name: str) -> str:
    """The category of an array that is not a parameter of the program, by its name."""
    return OPTIMIZER_STATE if name.startswith(ACCUMULATOR) else ACTIVATIONS


def _optimizers(program: Program, names: dict[Buffer, str]) -> frozenset[str]:
    """The names of optimizers: they have slots and are no layers, or they assign variables outside of any layer.

    A fused update may bear the name of a layer.
    """
    slots = [name.split(SLOT) for name in names.values() if SLOT in name]
    found = {optimizer for optimizer, _ in slots} - {owner.removeprefix(VARIABLE) for _, owner in slots}
    for compute_set in program.compute_sets:
        parts = compute_set.op_name.split("/")
        if len(parts) == 2 and parts[1].startswith("Assign"):
            found.add(parts[0])
    return frozenset(found)


def _of_variable(buffer: Buffer, name: str, optimizers: frozenset[str]) -> str:
    if buffer.label is not None and buffer.label.role is not None:
        return OPTIMIZER_STATE if buffer.label.role in ROLES_IN_OPTIMIZERS else WEIGHTS
    if SLOT in name or name.startswith(ACCUMULATOR):
        return OPTIMIZER_STATE
    if not name:
        return OTHER
    return OPTIMIZER_STATE if name.removeprefix(VARIABLE) in optimizers else WEIGHTS
