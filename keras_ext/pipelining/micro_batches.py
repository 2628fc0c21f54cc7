"""The number of micro-batches in executions of a pipelined model, checked before its data are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.partition.accumulation import Accumulation
from engine.partition.schedule import devices_of
from engine.partition.schedule_checks import check_count
from ipu._internal.config.system import current_system
from ipu._internal.pipelining.options import REDUCTIONS
from keras_ext.accumulation_options import REDUCTION
from keras_ext.extension import option
from keras_ext.pipelining.assigned import is_without_stages, may_have_stages
from keras_ext.pipelining.batch_specs import BATCH_SIZE, specs_of
from keras_ext.pipelining.errors import StageAssignmentError
from keras_ext.pipelining.graphs import graphs_of
from keras_ext.pipelining.opening import is_subclass, opens_inside
from keras_ext.pipelining.options import STEPS, ModelPipelining, pipelining_of, pipelining_steps
from keras_ext.pipelining.subclasses import outside_traces, subclass_graph, trace_subclass
from keras_ext.replication import ipus_of_replica, replicas_of
from keras_ext.types import KerasModel, Nest


@contextmanager
def pipelined_run(model: KerasModel, mode: str, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Finds the stages for a `fit`, `evaluate` or `predict`, and sets the IPUs of a replica while the context is open.

    Raises ConfigurationError for assignments and options that contradict each other, AccumulationStepError for counts.
    """
    find_stages(model, arguments)
    pipelining = pipelining_of(model, mode == "train")
    if pipelining is None:
        yield
        return
    with ipus_of_replica(ipus_taken(pipelining)):
        if mode == "train":
            _check_training(model, pipelining)
        yield


def find_stages(model: KerasModel, arguments: Mapping[str, Any]) -> None:
    """Traces `call` of a subclass of `Model` that has stages, unless it has been traced.

    Builds a sequential model that contains such a subclass. Raises StageAssignmentError for a `call` that cannot be
    traced, and for unknown shapes.
    """
    if not _lacks_graph(model):
        return
    inputs = _inputs(arguments)
    if inputs is None:
        raise StageAssignmentError(
            f"Expected a model that has been built, or data that have shapes. Received: {type(model).__name__} "
            f"{model.name!r}, which has pipeline stages, and data that must be read to know what it takes. "
            "Call build() on the model with the shapes of its inputs first."
        )
    if is_subclass(model):
        trace_subclass(model, inputs)
        return
    with outside_traces(model):
        graphs_of(model).build(model, inputs)


def _lacks_graph(model: KerasModel) -> bool:
    if is_subclass(model):
        return subclass_graph(model) is None and may_have_stages(model)
    if is_without_stages(model) or graphs_of(model).graph(model) is not None:
        return False
    return any(opens_inside(layer) for layer in model.layers)


def pipeline_accumulation(model: KerasModel, pipelining: ModelPipelining) -> Accumulation:
    """The accumulation of each update of `fit` of a pipelined model."""
    replicas = replicas_of_pipeline(model, pipelining)
    return Accumulation(pipelining_steps(model) or 1, replicas, REDUCTIONS[option(model, REDUCTION, 0)])


def replicas_of_pipeline(model: KerasModel, pipelining: ModelPipelining) -> int:
    """The number of replicas of a pipeline; ConfigurationError if the IPUs do not divide among them."""
    with ipus_of_replica(ipus_taken(pipelining)):
        return replicas_of(model.distribute_strategy)


def ipus_taken(pipelining: ModelPipelining) -> int:
    """The number of IPUs of one replica; 1 where no IPUs are configured, as the pipeline then gets all it needs."""
    return pipelining.ipus if current_system().configured else 1


def check_pipeline_count(pipelining: ModelPipelining, steps: int, training: bool, what: str) -> None:
    """Raises AccumulationStepError, with the nearest legal counts, for micro-batches illegal for a schedule."""
    devices = devices_of(len(pipelining.devices), pipelining.devices)
    check_count(pipelining.schedule, devices, steps, training=training, option=what)


def _check_training(model: KerasModel, pipelining: ModelPipelining) -> None:
    steps = pipelining_steps(model)
    if steps is None and pipelining.schedule != "Sequential":
        raise ConfigurationError(
            f"Expected gradient_accumulation_steps_per_replica to be set for training a pipelined model. Received: "
            f"None for {model.name!r}, with PipelineSchedule.{pipelining.schedule}. Call "
            f"set_pipelining_options(gradient_accumulation_steps_per_replica=...), or choose "
            f"PipelineSchedule.Sequential, which accumulates only on demand."
        )
    check_pipeline_count(pipelining, steps or 1, True, STEPS.removeprefix("pipelining_"))


def _inputs(arguments: Mapping[str, Any]) -> Any:
    """Specs of the model's inputs in a run; None where they are known only by reading the data."""
    x: Nest = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec
        return spec[0] if isinstance(spec, tuple) else spec
    leaves = [] if x is None else tf.nest.flatten(x)
    if leaves and all(isinstance(leaf, np.ndarray | tf.Tensor) and len(leaf.shape) for leaf in leaves):
        return specs_of(x, arguments.get("batch_size") or BATCH_SIZE)
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and len(x) and not isinstance(x, list | tuple | dict):
        batch = x[0]
        batch = batch[0] if isinstance(batch, tuple) else batch
        return tf.nest.map_structure(lambda leaf: specs_of(np.asarray(leaf), len(leaf)), batch)
    return None
