"""Exclusion of these packages' functions from AutoGraph, which converts users' own: converting one takes some 0.1 s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import config

# TensorFlow exempts itself and Keras by the same rules; decorators would be needed on every public name.
config.CONVERSION_RULES += tuple(config.DoNotConvert(package) for package in ("engine", "ipu", "keras_ext"))


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function, which AutoGraph converts where it converts the code that calls this; eager code needs none."""
    if tf.executing_eagerly():
        return function
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())
