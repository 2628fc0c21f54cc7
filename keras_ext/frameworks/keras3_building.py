"""Shapes with which Keras 3 builds a model, given data: the number of rows stays open where batches may differ."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src import tree
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from keras_ext.types import Batch, Tensor


def building_batch(model: keras.Model, adapter: DataAdapter, batch: Batch) -> Any:
    """The batch to build `model` with for data whose first batch is `batch`.

    A Sequential model keeps the shape it is built with, so it gets KerasTensors of [None, ...] if the last batch may
    be smaller, as it does from Keras outside a strategy. Other models may read the number of rows in their `call`.
    """
    if not isinstance(model, keras.Sequential) or not _rows_vary(adapter):
        return batch
    return tree.map_structure(_with_open_rows, batch, none_is_leaf=False)


def _rows_vary(adapter: DataAdapter) -> bool:
    if isinstance(adapter, ArrayDataAdapter):
        return bool(adapter.partial_batch_size)
    if isinstance(adapter, TFDatasetAdapter):
        shapes = [spec.shape for spec in tf.nest.flatten(adapter.get_tf_dataset().element_spec)]
        return any(shape.rank and shape[0] is None for shape in shapes)
    return True


def _with_open_rows(value: Tensor) -> Any:
    shape = tuple(value.shape)
    return keras.KerasTensor((None, *shape[1:]), keras.backend.standardize_dtype(value.dtype)) if shape else value
