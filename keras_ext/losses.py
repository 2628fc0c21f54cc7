"""Definitions of the documented losses, one for both Keras; `keras_ext/names` has their classes."""

from __future__ import annotations

from keras_ext.layers.ctc import CTCLoss
from keras_ext.layers.definition import Definition

DEFINITIONS: dict[str, type[Definition]] = {"CTCLoss": CTCLoss}
"""Definitions by documented name."""
