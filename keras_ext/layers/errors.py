"""Errors of the layers, each of the class that Keras raises for the same."""

from engine.errors import IPUError


class LayerArgumentError(IPUError, ValueError):
    """An argument of a layer's constructor that the layer does not take."""


class LayerInputError(IPUError, ValueError):
    """A layer was given inputs of a shape it does not take."""
