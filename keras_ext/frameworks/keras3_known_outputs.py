"""Layers, losses and metrics of Keras 3 models, built before a trace; without a call where outputs' shapes are known.

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


def build_parts(model: keras.Model, mode: str, batch: Batch) -> None:
    """Builds a model's layers and, unless it predicts, the loss and the metrics, for a nested batch of KerasTensors.

    As in a step, a loss that fails leaves metrics unbuilt. Raises as Keras for inputs and labels that do not fit.
    """
    inputs, labels, weights = data_adapter_utils.unpack_x_y_sample_weight(batch)
    is_built = all(layer.built for layer in model._flatten_layers())
    outputs = _outputs(model, inputs) if is_built else None
    if outputs is None:
        outputs = backend.compute_output_spec(model, inputs, training=False)
    given, computes = (inputs, labels, outputs), mode != "predict"
    if computes and model._compile_loss is not None and not model._compile_loss.built:
        backend.compute_output_spec(model._compute_loss, *given, sample_weight=weights, training=False)
    if computes and model._compile_metrics is not None and not model._compile_metrics.built:
        backend.compute_output_spec(model.compute_metrics, *given, sample_weight=weights)
        model._compile_metrics._ipu_built_ahead = True
    model._post_build()


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
