"""`export_for_ipu_serving`: the step and the input specs of an exported Keras model."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx

from engine.errors import ConfigurationError
from engine.serving.manifest import PipelineManifest
from ipu._internal.serving.counts import checked_count
from keras_ext.extension import Extension
from keras_ext.origins import is_of_tf_keras
from keras_ext.pipelining.graphs import is_shape
from keras_ext.pipelining.micro_batches import check_pipeline_count
from keras_ext.pipelining.options import pipelining_of
from keras_ext.pipelining.traced_step import in_stages
from keras_ext.types import KerasModel, Nest, Tensor


class ServingExport(Extension):
    """The method that exports a model for serving."""

    def export_for_ipu_serving(
        self: KerasModel,
        export_dir: str,
        batch_size: int | None = None,
        output_names: Nest = None,
        preprocessing_step: Callable[..., Any] | None = None,
        preprocessing_step_signature: Nest = None,
        postprocessing_step: Callable[..., Any] | None = None,
        postprocessing_step_signature: Nest = None,
        purge_export_dir: bool = False,
    ) -> Callable[..., Any]:
        """Exports the step of `predict` as a SavedModel that also contains a compiled program.

        `ipu.serving.export_single_step` says what is in the directory (Keras API; Keras with IPUs, section 19.9). The
        model must be built. Inputs have the names of the model's; later changes of weights have no effect. The number
        of iterations is `steps_per_execution` of `compile`; with pipeline stages it must be legal for the schedule.

        Args:
            export_dir: a directory that does not exist or is empty.
            batch_size: samples of one batch, an int or a scalar tensor, even if the model was built with another
                batch size; None for that of the model's inputs.
            output_names: names of the outputs, which then are a dict; None for a list.
            preprocessing_step: a function, or a tf.function, that TensorFlow runs before the program.
            preprocessing_step_signature: tf.TensorSpecs of its arguments, for a function.
            postprocessing_step: likewise, after the program.
            postprocessing_step_signature: likewise.
            purge_export_dir: whether the directory's contents are removed, once the new model is complete.

        Returns:
            A tf.function that runs the exported program on the engine. It returns a dict of tensors by
            `output_names`, or a list of tensors if these are None.

        Raises:
            ConfigurationError: a ValueError, for a model that is not built or lacks a batch size, a directory that is
                not empty, or names and steps that do not fit.
            StepCountError: a ValueError, for a number of iterations that is illegal for the schedule.
            UnsupportedOperation: operations that an IPU cannot run.
        """
        arguments = dict(locals())
        from ipu._internal.serving.export_step import Export, check_directory, export_step
        from ipu._internal.serving.served_functions import Step

        check_directory(export_dir, purge_export_dir)
        structure, specs = model_inputs(self, batch_size)
        iterations = _steps_per_execution(self)
        step = Step(_predicting(self, structure), specs, f"model {self.name!r}", self)
        pipeline = _pipeline(self, iterations)
        return export_step(Export.of(arguments, step=step, iterations=iterations, pipeline=pipeline))


def model_inputs(model: KerasModel, batch_size: int | None) -> tuple[Any, tuple[tf.TensorSpec, ...]]:
    """The structure in which a model takes its inputs, and their flat specs with names and a batch size.

    Raises ConfigurationError for a model that is not built, and for unknown sizes.
    """
    batch_size = None if batch_size is None else checked_count("batch_size", batch_size)
    structure, names = _symbolic_inputs(model) if getattr(model, "inputs", None) else _built_inputs(model)
    flat = tf.nest.flatten(structure)
    specs = tuple(_with_batch(model, spec, name, batch_size) for spec, name in zip(flat, names, strict=True))
    return structure, specs


def _symbolic_inputs(model: KerasModel) -> tuple[Any, list[str]]:
    """Specs and names of a functional or sequential model's symbolic inputs."""
    inner = getattr(model, "_functional", None) or model
    structure = getattr(inner, "_inputs_struct", None)
    structure = getattr(inner, "_nested_inputs", None) if structure is None else structure
    structure = model.inputs if structure is None else structure
    if isinstance(structure, list | tuple) and len(structure) == 1:
        structure = structure[0]
    flat = tf.nest.flatten(structure)
    names = list(getattr(model, "input_names", None) or [_layer_name(tensor) for tensor in flat])
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in flat]
    return tf.nest.pack_sequence_as(structure, specs), names


def _layer_name(tensor: Tensor) -> str:
    """The name of the input layer that a symbol stands for."""
    history = getattr(tensor, "_keras_history", None)
    return history.operation.name if history is not None else tensor.name


def _built_inputs(model: KerasModel) -> tuple[Any, list[str]]:
    """Specs of the shapes given to `build` of a subclass of `Model`, named after the parameter of `call`."""
    shapes = _build_shapes(model) if model.built else None
    if shapes is None:
        raise ConfigurationError(
            f"Expected a model that is built. Received: {model.name!r}, whose input shapes are not known. Call "
            "model.build(input_shape), with the batch size, or the model on a batch, before it is exported."
        )
    dtype = getattr(model, "input_dtype", None) or "float32"
    parameter = next(iter(inspect.signature(model.call).parameters), "inputs")
    specs = _specs_of_shapes(shapes, dtype)
    count = len(tf.nest.flatten(specs))
    return specs, [parameter] if count == 1 else [f"{parameter}_{number}" for number in range(count)]


def _build_shapes(model: KerasModel) -> Any:
    shapes = getattr(model, "_build_shapes_dict", None)
    if shapes:
        values = list(shapes.values())
        return values[0] if len(values) == 1 else values
    return getattr(model, "_build_input_shape", None)


def _specs_of_shapes(shapes: Nest, dtype: str) -> Any:
    if isinstance(shapes, tf.TensorShape) or is_shape(shapes):
        return tf.TensorSpec(shapes, dtype)
    if isinstance(shapes, dict):
        return {name: _specs_of_shapes(shape, dtype) for name, shape in shapes.items()}
    return [_specs_of_shapes(shape, dtype) for shape in shapes]


def _with_batch(model: KerasModel, spec: tf.TensorSpec, name: str, batch_size: int | None) -> tf.TensorSpec:
    sizes = spec.shape.as_list() if spec.shape.rank is not None else [None]
    if sizes and batch_size is not None:
        sizes[0] = batch_size
    elif sizes and sizes[0] is None:
        raise ConfigurationError(
            f"Expected a batch size for model {model.name!r}: a program is compiled for one. Received: neither "
            f"batch_size nor an input {name!r} that says it. Pass batch_size, or give Input(batch_size=...)."
        )
    if None in sizes:
        raise ConfigurationError(
            f"Expected inputs of static shape. Received: {spec.shape} for input {name!r} of model {model.name!r}. "
            "Make the model with Input layers that give every size."
        )
    return tf.TensorSpec(sizes, spec.dtype, name)


def _predicting(model: KerasModel, structure: Nest) -> Callable[..., Any]:
    """The step of `predict` for one batch, as a function of the flat inputs."""

    def predict_step(*tensors: tf.Tensor) -> Any:
        inputs = tf.nest.pack_sequence_as(structure, tensors)
        pipelining = pipelining_of(model, training=False)
        stages = contextlib.nullcontext() if pipelining is None else in_stages(model, pipelining.stages)
        with model.distribute_strategy.scope(), _autograph_of(model), stages:
            return model.predict_step((inputs,))

    return predict_step


def _autograph_of(model: KerasModel) -> contextlib.AbstractContextManager[Any]:
    """Lets tf_keras convert the `call` of users' layers by AutoGraph, which is off where steps are traced."""
    return ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED) if is_of_tf_keras(model) else contextlib.nullcontext()


def _steps_per_execution(model: KerasModel) -> int:
    steps = getattr(model, "_steps_per_execution", None)
    if steps is None:
        steps = getattr(model, "steps_per_execution", None)
    return 1 if steps is None else int(steps.numpy() if hasattr(steps, "numpy") else steps)


def _pipeline(model: KerasModel, iterations: int) -> PipelineManifest | None:
    pipelining = pipelining_of(model, training=False)
    if pipelining is None:
        return None
    check_pipeline_count(pipelining, iterations, False, "steps_per_execution, the iterations of an exported pipeline,")
    return PipelineManifest(pipelining.devices, pipelining.schedule, pipelining.options.forward)
