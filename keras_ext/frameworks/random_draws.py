"""Notes the states from which a step draws random numbers, in its trace: replicas draw from them in turn."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.marks import note_random
from keras_ext.wrapping import Original, wrap


@functools.cache
def install() -> None:
    """Wraps the method with which a generator of TensorFlow draws."""
    wrap(tf.random.Generator, "_skip_single_var", _skip)


def install_keras3() -> None:
    """Wraps the method with which a seed generator of Keras 3 draws."""
    from keras.src.random.seed_generator import SeedGenerator

    wrap(SeedGenerator, "next", _next)


def _skip(original: Original, generator: tf.random.Generator, variable: Any, delta: Any) -> Any:
    note_random(variable)
    return original(generator, variable, delta)


def _next(original: Original, generator: Any, *arguments: Any, **named: Any) -> Any:
    note_random(generator.state._value)
    return original(generator, *arguments, **named)
