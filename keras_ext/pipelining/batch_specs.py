"""The shapes of a model's batches before any is read: from data, from specs, or from the shapes it was built with."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.integers import checked_integer
from keras_ext.pipelining.calls import model_graph
from keras_ext.pipelining.graphs import graphs_of
from keras_ext.pipelining.subclasses import outside_traces, subclass_graph, trace_subclass
from keras_ext.types import KerasModel, Nest, Tensor

BATCH_SIZE = 32
"""Keras' own batch size, where none is given."""


def batch_specs(model: KerasModel, x: Nest, y: Nest, batch_size: int | None, training: bool) -> tuple[Any, ...]:
    """(x, y), or (x,) where there is no training, as nested `tf.TensorSpec`s of one batch.

    `x` and `y` are arrays, tensors or specs, `x` may be a data set of both. None is inferred from the model.
    Raises ConfigurationError for a model without shapes, and for outputs without a loss to infer targets from.
    """
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec if isinstance(x.element_spec, tuple) else (x.element_spec,)
        x, y = spec[0], spec[1] if len(spec) > 1 else y
    batch_size = None if batch_size is None else checked_integer("batch_size", batch_size)
    given = None if x is None else specs_of(x, batch_size)
    if given is not None:
        _build(model, given)
    graph = model_graph(model)
    if graph is None:
        raise ConfigurationError(
            f"Expected a model that has been built. Received: {model.name!r}, which does not know the shape of its "
            "inputs. Call build() on it, begin it with an Input, or give x."
        )
    size = batch_size or _rows(given) or _rows(graph.inputs) or BATCH_SIZE
    inputs = specs_of(graph.input if given is None else given, size)
    if not training:
        return (inputs,)
    return inputs, specs_of(_targets(model, graph) if y is None else y, size)


def _build(model: KerasModel, inputs: Nest) -> None:
    graphs = graphs_of(model)
    if graphs.kind(model) == "sequential":
        with outside_traces(model):
            graphs.build(model, tf.nest.flatten(inputs)[0])
    elif graphs.kind(model) == "subclass" and subclass_graph(model) is None:
        trace_subclass(model, inputs)


def specs_of(structure: Nest, batch_size: int | None) -> Any:
    """Specs of one batch of nested arrays; in symbols and specs an unknown first size becomes the batch size."""
    return tf.nest.map_structure(lambda leaf: _spec(leaf, batch_size), structure)


def _spec(leaf: Tensor, batch_size: int | None) -> tf.TensorSpec:
    is_data = isinstance(leaf, np.ndarray | tf.Tensor)
    dtype = tf.as_dtype(leaf.dtype)
    if is_data and dtype == tf.float64:
        dtype = tf.float32
    sizes = tf.TensorShape(leaf.shape).as_list()
    if sizes and (is_data or sizes[0] is None):
        rows = sizes[0]
        size = batch_size or (BATCH_SIZE if is_data else None)
        sizes[0] = size if rows is None or size is None else min(rows, size)
    return tf.TensorSpec(sizes, dtype)


def _rows(structure: Nest) -> int | None:
    sizes = [
        tf.TensorShape(leaf.shape).as_list()[0]
        for leaf in tf.nest.flatten(structure)
        if leaf is not None and len(leaf.shape)
    ]
    return next((int(size) for size in sizes if size is not None), None)


def _targets(model: KerasModel, graph: KerasModel) -> Any:
    """Specs of the losses' targets: labels for sparse losses, else like the outputs."""
    outputs = graph.output
    losses = getattr(model, "loss", None)
    flat = tf.nest.flatten(outputs)
    if isinstance(losses, list | tuple | dict):
        each = [losses.get(name) for name in _names(outputs)] if isinstance(losses, dict) else list(losses)
    else:
        each = [losses] * len(flat)
    if len(each) != len(flat) or any(loss is None for loss in each):
        raise ConfigurationError(
            f"Expected a model compiled with a loss for each of its {len(flat)} outputs, to know what targets it is "
            f"trained with. Received: loss={losses!r}. Give y: an array, or a tf.TensorSpec."
        )
    specs = [_target(output, loss) for output, loss in zip(flat, each, strict=True)]
    return tf.nest.pack_sequence_as(outputs, specs)


def _names(outputs: Nest) -> list[str]:
    return list(outputs) if isinstance(outputs, dict) else [tensor._keras_history[0].name for tensor in outputs]


def _target(output: Tensor, loss: object) -> tf.TensorSpec:
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    if "sparse" in f"{name} {type(loss).__name__}".lower():
        return tf.TensorSpec(output.shape[:-1], tf.int32)
    return tf.TensorSpec(output.shape, tf.as_dtype(output.dtype))
