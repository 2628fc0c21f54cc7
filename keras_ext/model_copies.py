"""A copy of a model: configuration, weights, compiled arguments, optimizer state."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from keras_ext.lost_state import check_attributes
from keras_ext.origins import is_of_tf_keras

_TRAINED = "_ipu_trained_variables"
_OPTIMIZER = "_ipu_optimizer_of_traces"


def copy_of(model: Any) -> Any:
    """A model of the same class in the present strategy's scope.

    Raises what the class's own methods raise, and ConfigurationError for state that would be lost.
    """
    with _policy_of(model):
        copied = type(model).from_config(model.get_config())
    if model.built and not copied.built:
        copied.build_from_config(model.get_build_config())
        copied.built = True  # as Keras sets it after a build by a config
    layers = _pairs(model._flatten_layers(), copied._flatten_layers(), "layers")
    _check_policies(layers)
    frozen = [(new, old.trainable) for old, new in layers]
    _freeze(frozen)
    for old, new in layers:
        for generator, other in zip(_seed_generators(old), _seed_generators(new), strict=True):
            other.state.assign(np.asarray(generator.state))
        for state, other in zip(_recurrent_states(old), _recurrent_states(new), strict=True):
            other.assign(np.asarray(state))
    copied.set_weights(model.get_weights())
    for _, new in layers:
        if hasattr(new, "adapt_mean"):  # Keras 3 normalizes by numbers that it computes from these weights
            new.finalize_state()
    if getattr(model, "optimizer", None) is None:  # Keras 3 sets it in compile
        check_attributes(layers)
        return copied
    # Losses and functions are shared; optimizers and metrics have variables.
    arguments = dict(model._compile_config.config)
    when_compiled = getattr(model, "_compiled_trainable_state", {})  # tf_keras trains what was trainable then
    _freeze([(new, when_compiled.get(old, old.trainable)) for old, new in layers])
    copies = {name: tf.nest.map_structure(_copied, value) for name, value in arguments.items()}
    copied.compile(**copies)
    _freeze(frozen)
    _copy_state(model.optimizer, copied.optimizer, model, copied)
    given = zip(tf.nest.flatten(arguments), tf.nest.flatten(copies), strict=True)
    check_attributes([*layers, *((old, new) for old, new in given if old is not new)])
    if getattr(model, "train_function", None) is not None:
        vars(copied)[_OPTIMIZER] = copied.optimizer
    return copied


@contextlib.contextmanager
def as_traced_before(model: Any) -> Iterator[None]:
    """Trains a copy as its model was traced, by the same optimizer and variables, while the context is open.

    A trace outlives a new `model.optimizer`, and in Keras 3 changes of `trainable`, until `compile` makes new traces.
    """
    with _optimizer_of_traces(model), _trainable_in_traces(model):
        yield


@contextlib.contextmanager
def _optimizer_of_traces(model: Any) -> Iterator[None]:
    traced = vars(model).get(_OPTIMIZER)
    if traced is None or traced is model.optimizer:  # a model of Keras 3 has none before compile
        yield
        return
    now, model.optimizer = model.optimizer, traced
    try:
        yield
    finally:
        if model.optimizer is traced:  # no callback has replaced it
            model.optimizer = now


@contextlib.contextmanager
def _trainable_in_traces(model: Any) -> Iterator[None]:
    trained = vars(model).get(_TRAINED)
    if trained is None:
        yield
        return
    chosen = {id(variable) for variable in trained}
    layers = [layer for layer in model._flatten_layers() if layer.variables]
    now = [(layer, layer.trainable) for layer in layers]
    variables = [(variable, variable.trainable) for variable in model.variables]
    _freeze([(layer, any(id(variable) in chosen for variable in layer.variables)) for layer in layers])
    _freeze([(variable, id(variable) in chosen) for variable, _ in variables])
    try:
        yield
    finally:
        _freeze(now)
        _freeze(variables)


def forget_traces(model: Any) -> None:
    """Lets a copy train its trainable variables by its optimizer again, as Keras does from `compile` on."""
    vars(model).pop(_TRAINED, None)
    vars(model).pop(_OPTIMIZER, None)


def _pairs(old: Iterable[Any], new: Iterable[Any], what: str) -> list[tuple[Any, Any]]:
    olds, news = list(old), list(new)
    if len(olds) != len(news):
        raise ConfigurationError(
            f"Expected a copy with the model's {len(olds)} {what}, so that none of their state is lost. Received: "
            f"{len(news)}. Build the model in `with ipu.accelerate():` and load its weights."
        )
    return list(zip(olds, news, strict=True))


@contextlib.contextmanager
def _policy_of(model: Any) -> Iterator[None]:
    """Makes the model's dtype policy that of all layers created while the context is open."""
    policies = sys.modules["tf_keras" if is_of_tf_keras(model) else "keras"].mixed_precision
    before = policies.global_policy()
    if before.name == model.dtype_policy.name:
        yield
        return
    policies.set_global_policy(model.dtype_policy)
    try:
        yield
    finally:
        policies.set_global_policy(before)


def _check_policies(layers: Iterable[tuple[Any, Any]]) -> None:
    for old, new in layers:
        if old.dtype_policy.name != new.dtype_policy.name:
            raise ConfigurationError(
                f"Expected a copy whose layers have the dtype policies of the model's. Received: "
                f"{new.dtype_policy.name!r} for {old.name!r}, which has {old.dtype_policy.name!r}. Give the layers "
                f"their dtype in the model's constructor, or build the model in `with ipu.accelerate():`."
            )


def _freeze(states: Iterable[tuple[Any, bool]]) -> None:
    """Sets `trainable` of layers, the outer ones first, as it reaches the inner ones, or of variables of Keras 3."""
    for each, trainable in states:
        if each.trainable != trainable:
            each.trainable = trainable


def _seed_generators(layer: Any) -> Sequence[Any]:
    return getattr(layer, "_seed_generators", ())


def _recurrent_states(layer: Any) -> list[Any]:
    """The states of a layer that keeps them between batches, which are no weights."""
    states = tf.nest.flatten(getattr(layer, "states", None)) if getattr(layer, "stateful", False) else []
    return [each for each in states if hasattr(each, "assign")]


def _copied(value: Any) -> Any:
    has_variables = hasattr(value, "from_config") and hasattr(value, "variables")
    return type(value).from_config(value.get_config()) if has_variables else value


def _copy_state(source: Any, target: Any, model: Any, copied: Any) -> None:
    """Builds the target for the variables that the source is built for, and gives it the source's state.

    Raises ConfigurationError for a source with state of variables that are not the model's.
    """
    if len(_listed(source)) > len(_listed(target)):
        of_copy = {id(old): new for old, new in _pairs(model.variables, copied.variables, "variables")}
        optimized = _optimized(source, model.variables)
        unknown = [variable for variable in optimized if id(variable) not in of_copy]
        if unknown:
            raise ConfigurationError(
                f"Expected an optimizer of the model's variables alone. Received: {type(source).__name__} with state "
                f"of {len(unknown)} other variables. Compile the model with an optimizer of its own."
            )
        variables = [of_copy[id(variable)] for variable in optimized]
        (getattr(target, "build", None) or target._create_all_weights)(variables)  # the latter of legacy optimizers
        if getattr(model, "train_function", None) is not None and hasattr(source, "_trainable_variables"):
            vars(copied)[_TRAINED] = variables
    for old, new in _pairs(_listed(source), _listed(target), f"variables of {type(source).__name__}"):
        new.assign(np.asarray(old))
    source, target = (getattr(each, "inner_optimizer", each) for each in (source, target))
    # tf_keras lists neither the rate of the last update by a schedule nor Nadam's product.
    if hasattr(source, "_current_learning_rate") and hasattr(target, "_current_learning_rate"):
        target._current_learning_rate.assign(np.asarray(source._current_learning_rate))
    if hasattr(source, "_u_product") and hasattr(target, "_u_product"):
        # The count of traced updates begins where the last trace did.
        target._u_product.assign(np.asarray(source._u_product))
        target._u_product_counter = max(1, source._u_product_counter - len(target._momentums))


def _optimized(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """The variables that an optimizer has been built for, in its order."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(inner, "_trainable_variables"):  # Keras 3
        return list(inner._trainable_variables)
    if hasattr(inner, "_index_dict"):  # tf_keras
        order = dict(inner._index_dict)
    else:  # legacy optimizers of tf_keras
        order = {key: number for number, key in enumerate(inner._slots)}
    by_key = {variable._unique_id: variable for variable in variables}
    return [by_key.get(key, key) for key in sorted(order, key=order.__getitem__)]


def _listed(optimizer: Any) -> list[Any]:
    return list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
