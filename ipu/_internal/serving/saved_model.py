"""The SavedModel of an export: ordinary TensorFlow with the weights as constants, usable without this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from engine.errors import ConfigurationError
from ipu._internal.serving.host_objects import host_objects
from ipu._internal.serving.program_calls import SCOPE
from ipu._internal.serving.served_functions import Step

SIGNATURE = "serving_default"


def frozen(step: Step) -> Any:
    """The step as a concrete function without variables: it takes tensors by position and returns a list.

    Raises ConfigurationError for a step that updates variables, or uses tables.
    """
    concrete = tf.function(step.flat, autograph=False).get_concrete_function(*step.specs)
    if any(tensor.dtype == tf.resource for tensor in concrete.captured_inputs):
        concrete = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
    left = [tensor for tensor in concrete.captured_inputs if tensor.dtype == tf.resource]
    if left:
        raise ConfigurationError(
            f"Expected a {step.what} that reads variables only. Received: one that uses {len(left)} others, which it "
            f"updates, or tables. Put tables into a preprocessing or postprocessing step."
        )
    return concrete


def save(
    directory: str,
    predict: Step,
    run: Callable[..., Any],
    preprocessing: Step | None,
    postprocessing: Step | None,
    output_names: Sequence[str],
) -> None:
    """Writes the SavedModel: one signature, by names, and functions `preprocessing` and `postprocessing` if given.

    `run` is the result of `frozen` for `predict`.
    """
    module = tf.Module()
    first = preprocessing or predict

    def serve(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        flat = [tensors[spec.name] for spec in first.specs]
        flat = flat if preprocessing is None else preprocessing.flat(*flat)
        with tf.name_scope(SCOPE):
            flat = tf.nest.flatten(run(*flat))
        flat = flat if postprocessing is None else postprocessing.flat(*flat)
        return {name: tf.identity(value) for name, value in zip(output_names, flat, strict=True)}

    function = tf.function(serve, autograph=False)
    for name, step in (("preprocessing", preprocessing), ("postprocessing", postprocessing)):
        if step is not None:
            setattr(module, name, tf.function(step.flat, autograph=False, input_signature=step.specs))
            setattr(module, f"{name}_uses", host_objects(step.source))
    signature = function.get_concrete_function(**{spec.name: spec for spec in first.specs})
    # Nothing is trained through a frozen step, and gradients that use results cannot be saved.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, directory, signatures={SIGNATURE: signature}, options=options)
