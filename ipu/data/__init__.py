"""Data sets: the package of `tensorflow.python.ipu.data`."""

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("ops",))
