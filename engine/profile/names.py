"""Readable names of compute sets and arrays: the front end's labels of variables, and op_names of operations."""

from __future__ import annotations

from collections.abc import Mapping

from engine.ir.op_names import layer_of, readable_name
from engine.program.program import Buffer, ComputeSet, Program, Role

VARIABLE = "variable of "
SLOT = " slot of "
"""Text between the optimizer and the variable in the name of an optimizer's slot."""
STASH = "stash of "
ACCUMULATOR = "sum of gradients of "
"""Prefixes of names: of arrays that wait in a pipeline, and of those that sum gradients over micro-batches."""


def layers_of_variables(program: Program) -> dict[str, str]:
    """The layer (or optimizer) of each labelled variable, by the variable's path; op_names have the same names."""
    known = {layer_of(compute_set.op_name) for compute_set in program.compute_sets}
    labels = (b.label for b in program.variables.values() if b.label is not None)
    return {path: _layer_of_path(path, known) for label in labels for path in (label.path, label.owner) if path}


def _layer_of_path(path: str, known: set[str]) -> str:
    scopes = path.split("/")[:-1]
    candidates = ("/".join(scopes[first:]) for first in range(len(scopes)))
    return next((each for each in candidates if each in known), "/".join(scopes[1:] or scopes))


def layer_in(name: str, of_variables: Mapping[str, str]) -> str:
    """The layer (or optimizer, or loss) in the name of an array; "" if there is none.

    `of_variables` is the result of `layers_of_variables`.
    """
    owner = name.split(" of ")[-1]
    if owner in of_variables:
        return of_variables[owner]
    words = owner.split(" ")
    return words[0] if (len(words) > 1 or " of " in name) and not name.startswith("input ") else ""


def buffer_names(program: Program, labelled: bool = True) -> dict[Buffer, str]:
    """Name each array: a variable by its label or its first reader's layer, others by the operation that writes them.

    A slot of an optimizer without a label is named after the variable of its shape that is updated with it. If
    `labelled` is False, only labels with a role are used.
    """
    variables = program.variables.values()
    names = {b: str(b.label) for b in variables if b.label is not None and (labelled or b.label.role is not None)}
    slots = {b for b in names if b.label is not None and b.label.role not in (None, Role.WEIGHT)}
    for compute_set in program.compute_sets:
        layer = layer_of(compute_set.op_name)
        written = (s.buffer for s in compute_set.writes)
        updated = [b for b in written if b in names and b not in slots and b.kind == "variable"]
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
    """Names of the loop states that sum gradients, which an update of a variable reads."""
    found: dict[Buffer, str] = {}
    for compute_set in program.compute_sets:
        updated = {s.buffer.shape: names.get(s.buffer, "") for s in compute_set.writes if s.buffer.kind == "variable"}
        for span in compute_set.reads:
            owner = updated.get(span.buffer.shape, "").split(SLOT)[-1]
            if span.buffer.kind == "arena" and ".state." in span.buffer.name and owner:
                found[span.buffer] = ACCUMULATOR + owner.removeprefix(VARIABLE)
    return found


def label_of(compute_set: ComputeSet, names: dict[Buffer, str]) -> str:
    """The readable name of a compute set, with the variable that an optimizer updates in it."""
    layer = layer_of(compute_set.op_name)
    for span in compute_set.writes:
        variable, name = span.buffer, names.get(span.buffer, "")
        is_weight = name.startswith(VARIABLE) if variable.label is None else variable.label.role is Role.WEIGHT
        owner = name.removeprefix(VARIABLE)
        if is_weight and variable.shape.elements > 1 and layer and owner != layer and f"{layer}/" not in owner:
            return f"{layer} update of {owner}"
    return readable_name(compute_set.op_name, compute_set.name)
