"""`export_single_step`, `export_pipeline` and `export_keras`: SavedModels that also hold a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.serving.counts import checked_count
from ipu._internal.serving.errors import ExportTypeError
from ipu._internal.serving.export_step import Export, check_directory, export_step
from ipu._internal.serving.input_datasets import signatures
from ipu._internal.serving.pipelines import checked_pipeline, composition
from ipu._internal.serving.served_functions import checked_step
from ipu._internal.types import Nest


def export_single_step(
    predict_step: Callable[..., Any],
    export_dir: str,
    iterations: int,
    predict_step_signature: Nest = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: Nest = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Nest = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Nest = None,
    purge_export_dir: bool = False,
) -> Callable[..., Any]:
    """Exports a function of tensors for TensorFlow Serving, with the variables it reads as constants.

    The SavedModel's default signature takes one batch under the names of the function's parameters, those of the
    preprocessing step if there is one. `assets/` contains the compiled program, which `engine.load`,
    `ipu.embedded_runtime` and `python -m ipu.serving` run. Keras with IPUs, section 19.9.

    Args:
        predict_step: the function for the IPU; returns tensors in any structure.
        export_dir: a directory that does not exist or is empty.
        iterations: number of batches in one run of the program on an IPU, an int or a scalar tensor; requests stay
            single batches.
        predict_step_signature: a list with a tf.TensorSpec of static shape for each argument; not needed if
            predict_step is a tf.function with an input_signature.
        input_dataset: a data set whose elements have that signature, instead of it. A preprocessing_step without a
            signature takes the elements; predict_step then takes its results.
        output_names: a str for one output, a list for several; output_0, output_1 and so on if None.
        preprocessing_step: runs before predict_step on the host, in the SavedModel's graph; may take strings.
        preprocessing_step_signature: its signature, unless it has an input_signature or there is an input_dataset.
        postprocessing_step: runs after predict_step on the host; takes its outputs in the order of tf.nest.flatten.
        postprocessing_step_signature: checked if given; otherwise that of predict_step's outputs.
        purge_export_dir: whether the contents of export_dir are removed, once the new model is complete.

    Returns:
        A tf.function that runs the exported program on the engine, with preprocessing and postprocessing, on the
        same arguments. It returns a dict of tensors by output_names, or a list of tensors if these are None.
        `IPUStrategy.run` takes it, and the SavedModel's signature once that is loaded.

    Raises:
        ValueError: an export_dir that is not empty; no signature, or two; one that is empty, of another length than
            the function has arguments, or not static; names or steps that do not fit each other.
        TypeError: a signature of another type.
        UnsupportedOperation: an operation that the engine cannot run.
    """
    arguments = dict(locals())
    check_directory(export_dir, purge_export_dir)
    iterations = checked_count("iterations", iterations)
    taken = signatures(
        predict_step, predict_step_signature, input_dataset, preprocessing_step, preprocessing_step_signature
    )
    step = checked_step(predict_step, taken.predict, "predict_step", taken.dataset)
    return export_step(
        Export.of(arguments, step=step, iterations=iterations, preprocessing_step_signature=taken.preprocessing)
    )


def export_pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    export_dir: str,
    iterations: int,
    inputs: Nest = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: object = None,
    poplar_options: object = None,
    name: str | None = None,
    predict_step_signature: Nest = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: Nest = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Nest = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Nest = None,
    purge_export_dir: bool = False,
) -> Callable[..., Any]:
    """Like `export_single_step` for a pipeline of stages, each of which takes the results of the one before.

    The first stage takes `inputs`, then the arrays of requests; the signature, like the input names, is of the latter.
    The schedule, the mapping, the iterations and the options affect the cost report of the program in `assets/`, which
    `ipu-profile make` writes: one execution of the pipeline on its IPUs, of `iterations` batches.

    Args:
        computational_stages: a list of at least two functions.
        export_dir: a directory that does not exist or is empty.
        iterations: executions of each stage in one run of the program on an IPU: a number that the schedule allows.
        inputs: values for the first arguments of the first stage, the same for all requests.
        device_mapping: the IPU of each stage; stage k is on IPU k if None.
        pipeline_schedule: Grouped if None.
        poplar_options: None, or a PipelineStageOptions for each stage, for its plans in the cost report; results do not
            depend on them.
        name: the name scope of the operations, "pipeline" if None.
        predict_step_signature: the signature of the first stage, without `inputs`.
        input_dataset: a data set whose elements have that signature, or are what the preprocessing_step takes.
        output_names: a str for one output, a list for several; output_0, output_1 and so on if None.
        preprocessing_step: runs before the first stage on the host, in the SavedModel's graph; may take strings.
        preprocessing_step_signature: its signature, unless it has an input_signature or there is an input_dataset.
        postprocessing_step: runs after the last stage on the host; takes its outputs in the order of tf.nest.flatten.
        postprocessing_step_signature: checked if given; otherwise that of the last stage's outputs.
        purge_export_dir: whether the contents of export_dir are removed, once the new model is complete.

    Returns:
        As `export_single_step`.

    Raises:
        ValueError: further, fewer than two stages, or a number of iterations that the schedule cannot take.
        TypeError: further, stages, a mapping, a schedule or options of another type.
    """
    arguments = dict(locals())
    check_directory(export_dir, purge_export_dir)
    iterations = checked_count("iterations", iterations)
    constants = [] if inputs is None else list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    pipeline = checked_pipeline(computational_stages, iterations, device_mapping, pipeline_schedule, poplar_options)
    function = composition(computational_stages, constants, name or "pipeline")
    taken = signatures(
        function, predict_step_signature, input_dataset, preprocessing_step, preprocessing_step_signature
    )
    step = checked_step(function, taken.predict, "first stage", taken.dataset)
    checked = {"step": step, "iterations": iterations, "pipeline": pipeline}
    return export_step(Export.of(arguments, **checked, preprocessing_step_signature=taken.preprocessing))


def export_keras(
    model: Any,
    export_dir: str,
    batch_size: int | None = None,
    output_names: Nest = None,
    preprocessing_step: Callable[..., Any] | None = None,
    preprocessing_step_signature: Nest = None,
    postprocessing_step: Callable[..., Any] | None = None,
    postprocessing_step_signature: Nest = None,
    purge_export_dir: bool = False,
) -> Callable[..., Any]:
    """Exports a Keras model created in an IPUStrategy's scope; the same as `model.export_for_ipu_serving(...)`.

    Args:
        model: a model that is built.
        export_dir: a directory that does not exist or is empty.
        batch_size: the size of the batches, an int or a scalar tensor; not needed if the model's inputs have one,
            which it replaces.
        output_names: a str for one output, a list for several; output_0, output_1 and so on if None.
        preprocessing_step: runs before the model on the host, in the SavedModel's graph; may take strings.
        preprocessing_step_signature: its signature, unless it has an input_signature.
        postprocessing_step: runs after the model on the host; takes its outputs in the order of tf.nest.flatten.
        postprocessing_step_signature: checked if given; otherwise that of the model's outputs.
        purge_export_dir: whether the contents of export_dir are removed, once the new model is complete.

    Returns:
        As `export_single_step`.

    Raises:
        ValueError: further, a model that is not built, has no batch size, or was not created in an IPUStrategy's scope.
        TypeError: further, `model` is no Keras model.
    """
    arguments = dict(locals())
    del arguments["model"]
    if not hasattr(model, "predict_step"):
        raise ExportTypeError(f"Expected a Keras model. Received: {model!r} of type {type(model).__name__}.")
    export = getattr(model, "export_for_ipu_serving", None)
    if export is None:
        raise ConfigurationError(
            f"Expected a Keras model created inside an IPUStrategy's scope. Received: {model.name!r}, which was not "
            "created inside an IPU strategy. Create it in `with strategy.scope():`."
        )
    return export(**arguments)
