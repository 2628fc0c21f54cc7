"""Notes on the names and roles of tf_keras' variables, which reports print."""

from __future__ import annotations

import functools
from typing import Any

from tf_keras.src.engine.base_layer import Layer
from tf_keras.src.engine.training import Model
from tf_keras.src.metrics.base_metric import Metric
from tf_keras.src.optimizers import optimizer
from tf_keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2

from engine.program.program import Label, Role
from ipu._internal.compiler.variable_labels import note_label, path_of
from keras_ext.frameworks.common import note_slot
from keras_ext.wrapping import Original, wrap


def install() -> None:
    """Wraps the functions that make variables of tf_keras."""
    wrap(Layer, "add_weight", _note_weight)
    wrap(Metric, "add_weight", functools.partial(_note_role, Role.METRIC))
    wrap(OptimizerV2, "add_weight", functools.partial(_note_role, Role.COUNTER))
    wrap(OptimizerV2, "add_slot", note_slot)
    wrap(optimizer._BaseOptimizer, "_build_learning_rate", functools.partial(_note_role, Role.COUNTER))
    wrap(Model, "_init_batch_counters", _note_batch_counters)
    for kind in (optimizer._BaseOptimizer, optimizer.Optimizer):
        wrap(kind, "add_variable_from_reference", note_slot)
        wrap(kind, "_create_iteration_variable", _note_iterations)


def _note_weight(original: Original, *arguments: Any, **named: Any) -> Any:
    """Notes the role of a layer's variable."""
    made = original(*arguments, **named)
    if path_of(made):
        note_label(made, Label(path_of(made), Role.WEIGHT if made.trainable else Role.STATISTIC))
    return made


def _note_role(role: Role, original: Original, maker: Any, *arguments: Any, **named: Any) -> Any:
    """Notes the role of a variable of a metric or an optimizer."""
    made = original(maker, *arguments, **named)
    if path_of(made):
        _note_of(maker, made, role)
    return made


def _note_iterations(original: Original, optimizer: Any) -> None:
    original(optimizer)
    _note_of(optimizer, optimizer._iterations, Role.COUNTER)


def _note_batch_counters(original: Original, model: Any) -> None:
    original(model)
    for name in ("train", "test", "predict"):
        if (counter := vars(model).get(f"_{name}_counter")) is not None:  # a model made in a graph has none
            note_label(counter, Label(f"{model.name}/{name}_counter"))


def _note_of(maker: Any, variable: Any, role: Role) -> None:
    scope, path = getattr(maker, "name", None) or maker._name, path_of(variable)
    note_label(variable, Label(path if path.startswith(f"{scope}/") else f"{scope}/{path}", role))
