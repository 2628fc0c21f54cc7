"""Notes on the paths and roles of Keras 3's variables, which reports print."""

from __future__ import annotations

from typing import Any

from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.core import Variable
from keras.src.metrics.metric import Metric
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import SeedGenerator

from engine.program.program import Label, Role
from ipu._internal.compiler.variable_labels import label_noted, note_label
from keras_ext.frameworks.common import note_slot
from keras_ext.wrapping import Original, wrap

MADE_BY = {BaseOptimizer: Role.COUNTER, Metric: Role.METRIC, SeedGenerator: Role.SEED}
"""Roles of variables that objects of these classes make."""


def install() -> None:
    """Wraps the functions that make variables of Keras 3."""
    wrap(Variable, "__init__", _make)
    wrap(Variable, "_initialize", _initialize)
    wrap(BaseOptimizer, "add_variable_from_reference", note_slot)


def _make(original: Original, variable: Variable, *arguments: Any, **named: Any) -> None:
    """Makes a variable, whose role is that of the object in whose name scope it is made."""
    original(variable, *arguments, **named)
    scopes = global_state.get_global_attribute("name_scope_stack") or []
    roles = (role for scope in scopes[::-1] for kind, role in MADE_BY.items() if isinstance(scope.caller, kind))
    weight = Role.WEIGHT if variable.trainable else Role.STATISTIC if scopes else None
    note_label(variable, Label(variable.path, next(roles, weight)))
    _pass_on(variable)


def _initialize(original: Original, variable: Variable, *arguments: Any, **named: Any) -> None:
    """Makes TensorFlow's variable, maybe long after Keras' own."""
    original(variable, *arguments, **named)
    _pass_on(variable)


def _pass_on(variable: Variable) -> None:
    label = label_noted(variable)
    if label is not None and variable._value is not None and label_noted(variable._value) is None:
        note_label(variable._value, label)
