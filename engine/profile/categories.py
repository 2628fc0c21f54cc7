"""Categories of the bytes on a tile, as cost reports distinguish them."""

from __future__ import annotations

from engine.profile.names import ACCUMULATOR, SLOT, VARIABLE
from engine.program.program import Buffer, Program

CODE, WEIGHTS, OPTIMIZER_STATE, ACTIVATIONS = "code", "weights", "optimizer state", "activations"
EXCHANGE_BUFFERS, VERTEX_STATE, STREAM_BUFFERS, OTHER = "exchange buffers", "vertex state", "stream buffers", "other"
CATEGORIES = (
    *(CODE, WEIGHTS, OPTIMIZER_STATE, ACTIVATIONS),
    *(EXCHANGE_BUFFERS, VERTEX_STATE, STREAM_BUFFERS, OTHER),
)
"""All of them; "activations" are all arrays that a step computes, with gradients, but without sums of gradients over
micro-batches, which are optimizer state."""


def categories_of(program: Program, names: dict[Buffer, str]) -> dict[Buffer, str]:
    """The category of every array that compute sets access, and of feeds; `names` are those of `buffer_names`."""
    optimizers = _optimizers(program, names)
    found: dict[Buffer, str] = {b: STREAM_BUFFERS for b in program.feeds.values()}
    found |= {b: _of_variable(names.get(b, ""), optimizers) for b in program.variables.values()}
    for compute_set in program.compute_sets:
        for span in (*compute_set.reads, *compute_set.writes):
            if span.buffer not in found:
                found[span.buffer] = of_array(names.get(span.buffer, "")) if span.buffer.kind == "arena" else OTHER
    return found


def of_array(name: str) -> str:
    """The category, by name, of an array that is not a parameter of the program."""
    return OPTIMIZER_STATE if name.startswith(ACCUMULATOR) else ACTIVATIONS


def _optimizers(program: Program, names: dict[Buffer, str]) -> frozenset[str]:
    """Names that have slots and are no layers (a fused update may bear a layer's name), or that assign at the top."""
    slots = [name.split(SLOT) for name in names.values() if SLOT in name]
    found = {optimizer for optimizer, _ in slots} - {owner.removeprefix(VARIABLE) for _, owner in slots}
    for compute_set in program.compute_sets:
        parts = compute_set.op_name.split("/")
        if len(parts) == 2 and parts[1].startswith("Assign"):
            found.add(parts[0])
    return frozenset(found)


def _of_variable(name: str, optimizers: frozenset[str]) -> str:
    if SLOT in name or name.startswith(ACCUMULATOR):
        return OPTIMIZER_STATE
    if not name:
        return OTHER
    return OPTIMIZER_STATE if name.removeprefix(VARIABLE) in optimizers else WEIGHTS
