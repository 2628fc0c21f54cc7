"""The common part of exports of a function of tensors: trace, compile, write, and return the runtime function."""

from __future__ import annotations

import inspect
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.serving.manifest import STRING, Manifest, PipelineManifest, TensorManifest
from engine.whole_files import staged
from ipu._internal.serving.compiled import freeze_step, write_program
from ipu._internal.serving.errors import ExportTypeError
from ipu._internal.serving.program_calls import call_program, mark_exported
from ipu._internal.serving.saved_model import frozen, save
from ipu._internal.serving.served_functions import Step, check_match, checked_step
from ipu._internal.types import Nest

logger = logging.getLogger("ipu")


@dataclass(frozen=True)
class Export:
    """The common arguments of exports, with the predict step checked."""

    step: Step
    export_dir: str
    iterations: int
    output_names: Any = None
    preprocessing_step: Callable[..., Any] | None = None
    preprocessing_step_signature: Any = None
    postprocessing_step: Callable[..., Any] | None = None
    postprocessing_step_signature: Any = None
    pipeline: PipelineManifest | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **checked: Any) -> Export:
        """The common arguments of an export among all of its `arguments`, by name, and those that it has checked."""
        common = {field.name: arguments[field.name] for field in fields(cls) if field.name in arguments}
        return cls(**{**common, **checked})


def check_directory(export_dir: str | Path, purge: bool) -> None:
    """Raises ConfigurationError, a ValueError, for a file, or a directory that is not empty without `purge`.

    It is raised, too, if `purge` is neither True nor False.
    """
    if purge not in (True, False):
        raise ConfigurationError(f"Expected purge_export_dir to be True or False. Received: {purge!r}.")
    path = Path(export_dir)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"Expected export_dir to be a directory. Received: {str(path)!r}, which is a file.")
    if not purge and path.is_dir() and any(path.iterdir()):
        raise ConfigurationError(
            f"Expected export_dir to be empty, or not to exist. Received: {str(path)!r}, which is not empty. Pass "
            "purge_export_dir=True to replace what is in it."
        )


def export_step(export: Export) -> Callable[..., Any]:
    """Writes the SavedModel with the compiled program; returns the function that runs it."""
    step = export.step
    preprocessing = _preprocessing(export)
    program = freeze_step(step.flat, step.specs)
    run = frozen(step)
    specs = _specs(run.outputs, step.what)
    postprocessing = _postprocessing(export, specs)
    results = specs if postprocessing is None else result_specs(postprocessing)
    names = checked_output_names(export.output_names, len(results))
    run_program = program.compile()
    inputs = (preprocessing or step).specs
    manifest = Manifest(
        executable=f"application_{uuid.uuid4()}.popef",
        iterations=export.iterations,
        inputs=_tensors([spec.name for spec in inputs], inputs),
        outputs=_tensors(names, results),
        program_inputs=_tensors([spec.name for spec in step.specs], step.specs),
        program_outputs=_tensors(names if postprocessing is None else default_names(len(specs)), specs),
        has_preprocessing=preprocessing is not None,
        has_postprocessing=postprocessing is not None,
        pipeline=export.pipeline,
    )
    # A server that watches the parent never sees a partial version.
    with staged(export.export_dir) as directory:
        save(str(directory), step, run, preprocessing, postprocessing, names)
        assets = directory / "assets"
        assets.mkdir(exist_ok=True)
        write_program(assets / manifest.executable, program, manifest)
        manifest.write(assets)
    logger.info("Exported %s to %s: %s -> %s", step.what, export.export_dir, manifest.inputs, manifest.outputs)
    named = export.output_names is not None
    return _runtime_function(run_program, manifest, preprocessing, postprocessing, named)


def default_names(count: int) -> list[str]:
    """The default names of outputs."""
    return [f"output_{number}" for number in range(count)]


def checked_output_names(names: Nest, count: int) -> list[str]:
    """The names as a list: a str for one output, a list of them for several; output_0, output_1 and so on for None.

    Raises ConfigurationError for another number of names or one given twice, ExportTypeError for anything else.
    """
    if names is None:
        return default_names(count)
    given = [names] if isinstance(names, str) else names
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) and name for name in given):
        raise ExportTypeError(f"Expected output_names to be a str or a list of them. Received: {names!r}.")
    if len(given) != count or len(set(given)) != count:
        raise ConfigurationError(
            f"Expected output_names to have a name of its own for each of {count} outputs. Received: {names!r}. "
            f"Leave it out for {', '.join(default_names(count))}."
        )
    return list(given)


def _preprocessing(export: Export) -> Step | None:
    signature = export.preprocessing_step_signature
    if export.preprocessing_step is None:
        _refuse_signature_alone(signature, "preprocessing_step")
        return None
    step = checked_step(export.preprocessing_step, signature, "preprocessing_step")
    check_match(result_specs(step), export.step.specs, step.what, export.step.what)
    return step


def _postprocessing(export: Export, specs: Sequence[tf.TensorSpec]) -> Step | None:
    function, signature = export.postprocessing_step, export.postprocessing_step_signature
    if function is None:
        _refuse_signature_alone(signature, "postprocessing_step")
        return None
    if signature is None and getattr(function, "input_signature", None) is None:
        signature = list(specs)
    step = checked_step(function, signature, "postprocessing_step")
    check_match(specs, step.specs, export.step.what, step.what)
    return step


def _refuse_signature_alone(signature: Nest, what: str) -> None:
    if signature is not None:
        raise ConfigurationError(f"Expected {what}_signature only with a {what}. Received: it without one.")


def result_specs(step: Step) -> list[tf.TensorSpec]:
    """The flat specs of a step's results. Raises ConfigurationError for dynamic shapes, except of preprocessing."""
    traced = tf.function(step.flat, autograph=False).get_concrete_function(*step.specs)
    return _specs(traced.outputs, step.what)


def _specs(outputs: Sequence[Any], what: str) -> list[tf.TensorSpec]:
    for number, output in enumerate(outputs):
        if not output.shape.is_fully_defined() and what != "preprocessing_step":
            raise ConfigurationError(
                f"Expected the {what} to return tensors of static shape. Received: {output.shape} at {number}. "
                "Give its shape with tf.ensure_shape."
            )
    return [tf.TensorSpec(output.shape, output.dtype) for output in outputs]


def _tensors(names: Sequence[str], specs: Sequence[tf.TensorSpec]) -> tuple[TensorManifest, ...]:
    def dtype(spec: tf.TensorSpec) -> str:
        return STRING if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype).name

    described = zip(names, specs, strict=True)
    return tuple(TensorManifest(name, tuple(spec.shape.as_list()), dtype(spec)) for name, spec in described)


def specs_of(tensors: Sequence[TensorManifest]) -> list[tf.TensorSpec]:
    """The named specs of a manifest's tensors."""
    return [tf.TensorSpec(each.shape, tf.as_dtype(each.dtype), each.name) for each in tensors]


def _runtime_function(
    run: Callable[[list[np.ndarray]], list[np.ndarray]],
    manifest: Manifest,
    preprocessing: Step | None,
    postprocessing: Step | None,
    named: bool,
) -> Callable[..., Any]:
    """A tf.function from the inputs to the outputs; TensorFlow runs the steps around the program.

    It returns a dict by the names of the outputs if these were `named`, and a list otherwise.
    """

    def runtime_func(*tensors: tf.Tensor) -> Any:
        flat = list(tensors) if preprocessing is None else preprocessing.flat(*tensors)
        flat = call_program(run, flat, specs_of(manifest.program_outputs))
        flat = flat if postprocessing is None else postprocessing.flat(*flat)
        return dict(zip((output.name for output in manifest.outputs), flat, strict=True)) if named else flat

    names = [tensor.name for tensor in manifest.inputs]
    if all(name.isidentifier() for name in names):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in names]
        runtime_func.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return mark_exported(tf.function(runtime_func, input_signature=specs_of(manifest.inputs), autograph=False))
