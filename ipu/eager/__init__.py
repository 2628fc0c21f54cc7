"""Differentiation with a tape: a module for each documented module, loaded when used."""

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(__name__, ("backprop",))
