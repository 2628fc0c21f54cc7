"""Data set wrappers: one module for each documented module, imported on first access."""

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("dataset_ops",))
