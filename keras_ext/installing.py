"""Installs the extensions into every Keras that serves IPU models; called when an IPUStrategy is made."""

from __future__ import annotations


def install() -> None:
    """Extends Keras 3, once. Raises ConfigurationError when Keras runs on another backend than TensorFlow."""
    from keras_ext.frameworks import keras3

    keras3.install()
