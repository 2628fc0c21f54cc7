"""The signature from an `input_dataset`: the preprocessing step's if that has none, otherwise the predict step's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ipu._internal.serving.export_step import result_specs
from ipu._internal.serving.served_functions import checked_step, signature_of
from ipu._internal.types import Function, Nest


class Signatures(NamedTuple):
    """Arguments of `checked_step` for the predict step, and the signature of the preprocessing step."""

    predict: Any
    dataset: Any
    preprocessing: Any


def signatures(
    predict_step: Function,
    predict_signature: Nest,
    dataset: tf.data.Dataset | None,
    preprocessing_step: Function | None,
    preprocessing_signature: Nest,
) -> Signatures:
    """The signatures of an export that takes `input_dataset`.

    A preprocessing step without a signature takes the data set's elements, and a predict step without one takes what
    the preprocessing step returns for them. Raises as `checked_step`.
    """
    if dataset is None or preprocessing_step is None or _has_signature(preprocessing_step, preprocessing_signature):
        return Signatures(predict_signature, dataset, preprocessing_signature)
    preprocessing_signature = signature_of(dataset, preprocessing_step)
    if not _has_signature(predict_step, predict_signature):
        step = checked_step(preprocessing_step, preprocessing_signature, "preprocessing_step")
        predict_signature = result_specs(step)
    return Signatures(predict_signature, None, preprocessing_signature)


def _has_signature(function: Callable[..., Any], signature: Nest) -> bool:
    return signature is not None or getattr(function, "input_signature", None) is not None
