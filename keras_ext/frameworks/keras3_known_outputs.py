"""Metrics and losses of Keras 3 models whose outputs' shapes follow from their layers, built without a call of them.

Keras calls a model for these shapes in a graph that it throws away: a quarter of the operations of a training step.
"""

from __future__ import annotations

from typing import Any

import keras
from keras.src import backend, tree
from keras.src.models.functional import Functional
from keras.src.trainers.data_adapters import data_adapter_utils

from keras_ext.frameworks.keras3_output_specs import has_true_output_spec
from keras_ext.types import Batch, Tensor


def build_for_known_outputs(model: keras.Model, batch: Batch) -> None:
    """Builds the metrics and the loss of a built Functional or Sequential model for a nested batch.

    Other models, and those whose inputs do not fit, are left to Keras. Raises as Keras for labels that do not fit.
    """
    if batch is None or not all(layer.built for layer in model._flatten_layers()):
        return
    inputs, labels, weights = data_adapter_utils.unpack_x_y_sample_weight(tree.map_structure(symbolic, batch))
    with model.distribute_strategy.scope():
        outputs = _outputs(model, inputs)
        if outputs is None:
            return
        if model._compile_metrics is not None and not model._compile_metrics.built:
            backend.compute_output_spec(model.compute_metrics, inputs, labels, outputs, sample_weight=weights)
        if model._compile_loss is not None and not model._compile_loss.built:
            backend.compute_output_spec(
                model._compute_loss, inputs, labels, outputs, sample_weight=weights, training=False
            )


def symbolic(array: Tensor) -> Any:
    """The KerasTensor of an array's shape and dtype; None for None."""
    return None if array is None else keras.KerasTensor(array.shape, backend.standardize_dtype(array.dtype))


def _outputs(model: keras.Model, inputs: Any) -> Any:
    """KerasTensors of a model's outputs, by its layers' `compute_output_spec`; None where only a call can give them."""
    graph = getattr(model, "_functional", None) if isinstance(model, keras.Sequential) else model
    if not isinstance(graph, Functional) or not has_true_output_spec(model):
        return None
    given, expected = tree.flatten(inputs), graph.inputs
    if not _same_structure(inputs, graph._inputs_struct) or not all(map(_fits, given, expected)):
        return None
    cast = [keras.KerasTensor(each.shape, known.dtype) for each, known in zip(given, expected, strict=True)]
    try:
        outputs = graph.compute_output_spec(cast)
    except Exception:  # Keras' own call raises the right error
        return None
    return outputs[0] if isinstance(outputs, list | tuple) and len(outputs) == 1 else outputs


def _same_structure(given: Any, expected: Any) -> bool:
    """Whether inputs are nested like those of a model, so that both have the same order."""
    given, expected = ((each,) if isinstance(each, keras.KerasTensor) else each for each in (given, expected))
    try:
        tree.assert_same_structure(tree.lists_to_tuples(given), tree.lists_to_tuples(expected))
    except (TypeError, ValueError):
        return False
    return True


def _fits(given: Any, expected: Any) -> bool:
    """Whether Keras takes an input with its own rank."""
    return (
        given is not None
        and not expected.sparse
        and len(given.shape) == len(expected.shape)
        and all(known in (None, size) for known, size in zip(expected.shape, given.shape, strict=True))
    )
