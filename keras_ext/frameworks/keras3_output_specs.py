"""Operations of Keras 3 whose specs of outputs can be trusted: Keras' own, and those that trace `call`."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.models.functional import Functional
from keras.src.utils.python_utils import is_default

from keras_ext.origins import is_programs, packages_of

OWN = frozenset(("call", "compute_output_shape", "compute_output_spec"))


def has_true_output_spec(operation: Any) -> bool:
    """Whether `compute_output_spec` of a layer, model or operation is sure to have the shapes of its call.

    A user's class may replace `call` and inherit the shapes of another, or state its own that are not true.
    """
    kind = type(operation)
    if (graph := _graph(operation)) is not None:
        methods = (kind.call, kind.__call__, kind.compute_output_spec)
        replaced = OWN & vars(operation).keys() or not all(map(_is_of_keras, methods))
        return not replaced and all(map(has_true_output_spec, graph.operations))
    if _traces_its_call(operation):
        return _is_of_keras(kind.__call__)
    return all(map(_is_of_keras_alone, _parts(operation)))


def _graph(operation: Any) -> Functional | None:
    """The graph of a Functional or built Sequential model."""
    found = getattr(operation, "_functional", None) if isinstance(operation, keras.Sequential) else operation
    return found if isinstance(found, Functional) else None


def _traces_its_call(operation: Any) -> bool:
    """Whether shapes are Keras' default: those of a trace of `call`."""
    kind = type(operation)
    if (OWN - {"call"}) & vars(operation).keys():
        return False
    if not isinstance(operation, keras.Layer):
        return kind.compute_output_spec is keras.Operation.compute_output_spec
    return kind.compute_output_spec is keras.Layer.compute_output_spec and is_default(kind.compute_output_shape)


def _parts(operation: Any) -> list[Any]:
    """An operation, its layers, and the operations of models among these."""
    layers = operation._flatten_layers() if isinstance(operation, keras.Layer) else [operation]
    return [*layers, *(each for layer in layers if (graph := _graph(layer)) is not None for each in graph.operations)]


def _is_of_keras_alone(part: Any) -> bool:
    """Whether a part has a class of Keras and no function of others, such as an activation or a `call` of its own."""
    return _is_of_keras(type(part)) and all(_is_of_keras(each) for each in vars(part).values() if callable(each))


def _is_of_keras(named: Any) -> bool:
    return "keras" in packages_of(named) and not is_programs(named)
