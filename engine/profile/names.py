"""Readable names of compute sets and arrays, from the op_names recorded by the front end."""

from __future__ import annotations

from engine.ir.op_names import layer_of, readable_name
from engine.program.program import Buffer, ComputeSet, Program

VARIABLE = "variable of "
SLOT = " slot of "
"""Between the optimizer and the variable in the name of an optimizer's slot."""
STASH = "stash of "
ACCUMULATOR = "sum of gradients of "
"""Prefixes of the names of arrays that wait in a pipeline, and of those that sum gradients over micro-batches."""


def layer_in(name: str) -> str:
    """The layer (or optimizer, or loss) in the name of an array; empty if it has none."""
    words = name.split(" of ")[-1].split(" ")
    return words[0] if (len(words) > 1 or " of " in name) and not name.startswith("input ") else ""


def buffer_names(program: Program) -> dict[Buffer, str]:
    """A name for each array: the operation that writes it, or for a variable the layer that reads it first.

    An optimizer's slot is named after the variable of the same shape that is updated with it, unless the front end has
    named it so.
    """
    names = {b: b.name for b in program.variables.values() if SLOT in b.name or b.name.startswith(ACCUMULATOR)}
    for compute_set in program.compute_sets:
        layer = layer_of(compute_set.op_name)
        updated = [s.buffer for s in compute_set.writes if s.buffer in names and s.buffer.kind == "variable"]
        for span in compute_set.reads:
            if span.buffer.kind == "variable" and layer:
                shape = span.buffer.shape
                owner = next((names[b] for b in updated if b.shape == shape and shape.elements > 1), "")
                names.setdefault(span.buffer, f"{layer}{SLOT}{owner}" if owner else f"{VARIABLE}{layer}")
        for span in compute_set.writes:
            if span.buffer.kind == "arena":
                names.setdefault(span.buffer, readable_name(compute_set.op_name, span.buffer.name))
    return names | _accumulators(program, names)


def _accumulators(program: Program, names: dict[Buffer, str]) -> dict[Buffer, str]:
    """Names of loop states that sum gradients: those that an update of a variable reads."""
    found: dict[Buffer, str] = {}
    for compute_set in program.compute_sets:
        updated = {s.buffer.shape: names.get(s.buffer, "") for s in compute_set.writes if s.buffer.kind == "variable"}
        for span in compute_set.reads:
            owner = updated.get(span.buffer.shape, "").split(SLOT)[-1]
            if span.buffer.kind == "arena" and ".state." in span.buffer.name and owner:
                found[span.buffer] = ACCUMULATOR + owner.removeprefix(VARIABLE)
    return found


def label_of(compute_set: ComputeSet, names: dict[Buffer, str]) -> str:
    """The readable name of a compute set; for an optimizer's, with the variable that it updates."""
    layer = layer_of(compute_set.op_name)
    for span in compute_set.writes:
        name = names.get(span.buffer, "")
        owner = name.removeprefix(VARIABLE)
        if name.startswith(VARIABLE) and span.buffer.shape.elements > 1 and layer and owner != layer:
            return f"{layer} update of {owner}"
    return readable_name(compute_set.op_name, compute_set.name)
