"""The package of `tf_keras.ipu`; modules are loaded when used."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from keras_ext.names import HOMES, LISTED

__getattr__, __dir__ = public_names(__name__, LISTED, HOMES)
