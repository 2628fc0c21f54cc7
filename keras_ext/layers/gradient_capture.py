"""Layers that capture gradients."""

from __future__ import annotations

from typing import Any

from ipu.ops.grad_util_ops import capture_upstream_gradients
from keras_ext.layers.definition import Definition
from keras_ext.types import Config, Nest, Tensor


class CaptureUpstreamGradients(Definition):
    """Returns its input, a tensor; the gradient of the loss with respect to it is captured.

    A model's `fit` captures for its optimizer, `ALSOptimizer(captured_grads_only=True)`; other backward passes need
    `ipu.eager.backprop.GradientCaptureTape` or `GradientCaptureContext`, else they raise RuntimeError.

    Args:
        tag: the key of the gradient; None is the layer's name and "_cug". One that occurs twice is a ValueError.
    """

    settings = ("tag",)

    def __init__(self, tag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tag = tag
        self.supports_masking = True

    def call(self, inputs: Tensor) -> Tensor:
        """The tensor, unchanged."""
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
        """Builds the layer."""
        if not self.layer.built:
            self.layer.build(input_shape)
            self.layer.built = True
        self.built = True

    def call(self, inputs: Nest) -> Tensor:
        """The result of the layer."""
        return capture_upstream_gradients(self.layer(inputs), self.tag or f"{self.name}_cag")

    def get_config(self) -> dict[str, Config]:
        """The tag, and the layer as Keras serializes it."""
        layer = self.framework.saving.serialize_keras_object(self.layer)
        layer["class_name"] = layer.get("registered_name") or layer["class_name"]  # as SavedModels of tf_keras read it
        return {**super().get_config(), "layer": {name: layer[name] for name in layer if name != "build_config"}}

    @classmethod
    def from_config(cls, config: dict[str, Config], custom_objects: dict[str, Any] | None = None) -> Any:
        """The layer of a configuration."""
        layer = cls.framework.layers.deserialize(config["layer"], custom_objects=custom_objects)
        return cls(**{**config, "layer": layer})

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The layer's."""
        return self.layer.compute_output_shape(input_shape)

    def compute_mask(self, inputs: Nest, mask: Nest = None) -> Any:
        """The layer's."""
        return self.layer.compute_mask(inputs, mask)
