"""Errors of a Keras 3 model's loss for labels that do not fit its outputs, where Keras calls the metrics first."""

from __future__ import annotations

import keras
from keras.src import backend, tree
from keras.src.trainers.data_adapters import data_adapter_utils

from keras_ext.frameworks.keras3_known_outputs import symbolic
from keras_ext.types import Batch


def error_of_loss(model: keras.Model, batch: Batch) -> ValueError | None:
    """The error of the model's loss for a batch; None if there is none, and for a model without a loss.

    Where Keras builds nothing beforehand it computes the loss first; here metrics would raise first, less clearly.
    """
    if batch is None or model._compile_loss is None:
        return None
    inputs, labels, weights = data_adapter_utils.unpack_x_y_sample_weight(tree.map_structure(symbolic, batch))
    try:
        with model.distribute_strategy.scope():
            outputs = backend.compute_output_spec(model, inputs, training=False)
            backend.compute_output_spec(
                model._compute_loss, inputs, labels, outputs, sample_weight=weights, training=False
            )
    except ValueError as error:
        return error
    return None
