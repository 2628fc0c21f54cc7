"""Layers that capture gradients."""

from __future__ import annotations

from typing import Any

from ipu.ops.grad_util_ops import capture_upstream_gradients
from keras_ext.layers.definition import Definition
from keras_ext.types import Config, Nest, Tensor


class CaptureUpstreamGradients(Definition):
    """Returns its input, a tensor, and captures the gradient of the loss with respect to it.

    A model's `fit` captures for its optimizer, `ALSOptimizer(captured_grads_only=True)`. Other backward passes raise
    RuntimeError without `ipu.eager.backprop.GradientCaptureTape` or `GradientCaptureContext`.

    Args:
        tag: the key of the gradient; None is the layer's name and "_cug". A tag that occurs twice raises ValueError.
    """

    settings = ("tag",)

    def __init__(self, tag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tag = tag
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """Captures the gradient with respect to a tensor, in the backward pass.

        Args:
            inputs: a tensor of a floating-point type, of any shape.

        Returns:
            The tensor, unchanged.
        """
        return capture_upstream_gradients(inputs, self.tag or f"{self.name}_cug")


class CaptureActivationGradients(Definition):
    """Calls a layer that returns a tensor, and captures the gradient of the loss with respect to that.

    See `CaptureUpstreamGradients`.

    Args:
        layer: the layer.
        tag: the key of the gradient; None is this layer's name and "_cag".
    """

    settings = ("tag",)

    def __init__(self, layer: Any, tag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer, self.tag = layer, tag
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Builds the layer, unless it is built.

        Args:
            input_shape: the shape, or structure of shapes, of the layer's inputs.
        """
        if not self.layer.built:
            self.layer.build(input_shape)
            self.layer.built = True
        self.built = True

    def call(self, inputs: Nest) -> Tensor:
        """Calls the layer, and captures the gradient with respect to its result.

        Args:
            inputs: what the layer takes: a tensor, or a structure of tensors.

        Returns:
            The result of the layer, a tensor.
        """
        return capture_upstream_gradients(self.layer(inputs), self.tag or f"{self.name}_cag")

    def get_config(self) -> dict[str, Config]:
        """The tag, and the layer as Keras serializes it."""
        layer = self.framework.saving.serialize_keras_object(self.layer)
        layer["class_name"] = layer.get("registered_name") or layer["class_name"]  # as SavedModels of tf_keras read it
        return {**super().get_config(), "layer": {name: layer[name] for name in layer if name != "build_config"}}

    @classmethod
    def from_config(cls, config: dict[str, Config], custom_objects: dict[str, Any] | None = None) -> Any:
        """Constructs the layer, with its inner layer, from a configuration.

        Args:
            config: a dictionary of `get_config`.
            custom_objects: classes and functions by the names that `config` has for them, as Keras takes them.

        Returns:
            The layer, not built.
        """
        layer = cls.framework.layers.deserialize(config["layer"], custom_objects=custom_objects)
        return cls(**{**config, "layer": layer})

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Infers the shape of the result, as the layer does.

        Args:
            input_shape: the shape, or structure of shapes, of the layer's inputs.

        Returns:
            The shape of the layer's result.
        """
        return self.layer.compute_output_shape(input_shape)

    def compute_mask(self, inputs: Nest, mask: Nest = None) -> Any:
        """Computes the mask of the result, as the layer does.

        Args:
            inputs: what the layer takes.
            mask: the masks of `inputs`, bool tensors; None for none.

        Returns:
            The layer's mask of its result, None for none.
        """
        return self.layer.compute_mask(inputs, mask)
