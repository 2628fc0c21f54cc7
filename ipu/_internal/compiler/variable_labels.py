"""Labels of a program's variables for reports: their names in Keras, an optimizer or TensorFlow, and their roles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from engine.program.program import Label, Role
from ipu._internal.compiler.optimizer_state import OptimizerState

UNNAMED = re.compile(r"Variable(_\d+)?")
"""Names that TensorFlow gives to variables without one."""
ATTRIBUTE = "_ipu_label"
"""Attribute of TensorFlow's variable for the label that was noted where it was made."""


def note_label(variable: Any, label: Label) -> None:
    """Notes the label of a TensorFlow variable; a later one replaces it."""
    setattr(variable, ATTRIBUTE, label)


def label_noted(variable: Any) -> Label | None:
    """The label that was noted for a TensorFlow variable."""
    return getattr(variable, ATTRIBUTE, None)


def path_of(variable: Any) -> str:
    """TensorFlow's name of a variable, without the number of the output; empty for anything else."""
    return str(getattr(variable, "name", "") or "").partition(":")[0]


def labels_of(variables: Sequence[Any], state: OptimizerState | None) -> list[Label | None]:
    """The label of each variable of a step; None where nothing names it. `state` has the notes of optimizers.

    A variable without notes that TensorFlow 1 named after a trainable variable of its shape is a slot of that variable.
    """
    plain = [getattr(variable, "variable", variable) for variable in variables]
    weights = {path_of(each): each.shape for each in plain if getattr(each, "trainable", False)}
    return [_label_of(each, weights, state) for each in plain]


def _label_of(variable: Any, weights: dict[str, Any], state: OptimizerState | None) -> Label | None:
    key = id(variable)
    if state is not None and key in state.sums:
        return Label("", Role.GRADIENT_SUM, state.sums[key])
    if (noted := label_noted(variable)) is not None:
        return noted
    if state is not None and key in state.slots:
        optimizer, owner = state.slots[key]
        return Label(optimizer, Role.SLOT, owner)
    path = path_of(variable)
    if not path or UNNAMED.fullmatch(path):
        return None
    if path in weights:
        return Label(path, Role.WEIGHT)
    *parts, slot = path.split("/")
    for begin in range(len(parts)):  # an optimizer in a variable scope puts the scope before the weight's own
        owner = "/".join(parts[begin:])
        if owner in weights and weights[owner] == getattr(variable, "shape", None):
            return Label(slot, Role.SLOT, owner)
    return Label(path)
