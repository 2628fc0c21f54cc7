"""Gradients of tensors inside of a model, captured by tag while a backward pass is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.saved_model import save_context

from engine.errors import ConfigurationError
from ipu._internal.compiler.outlining import keep_inline
from ipu._internal.thread_values import ThreadValue
from ipu._internal.types import TensorLike

_captured: ThreadValue[dict[str, tf.Tensor] | None] = ThreadValue(None)


class GradientCaptureContext:
    """A context in which this thread captures gradients: a backward pass fills `captured_gradients`, tensors by tag."""

    def __init__(self) -> None:
        self.captured_gradients: dict[str, tf.Tensor] = {}
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> GradientCaptureContext:
        self._entered.enter_context(_captured.replaced_by(self.captured_gradients))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()


class GradientCaptureTape(tf.GradientTape):
    """A tf.GradientTape whose `gradient` captures gradients: `captured_gradients` has those of its latest call."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.captured_gradients: dict[str, tf.Tensor] = {}

    def gradient(self, *arguments: Any, **named: Any) -> Any:
        """Computes the gradients, as tf.GradientTape does, and captures those of tagged tensors."""
        with GradientCaptureContext() as context:
            gradients = super().gradient(*arguments, **named)
        self.captured_gradients = context.captured_gradients
        return gradients


@contextlib.contextmanager
def captures_seen(gradients: dict[str, tf.Tensor]) -> Iterator[None]:
    """Lets `captured_gradients` and backward passes of this thread use that dictionary, while the context is open."""
    with _captured.replaced_by(gradients):
        yield


def captured_gradients() -> dict[str, tf.Tensor]:
    """Gradients that the innermost context of this thread has captured so far; empty outside of one."""
    return _captured.value or {}


def capture_upstream_gradients(inputs: TensorLike, tag: str) -> tf.Tensor:
    """Returns `inputs`, of a floating-point type; the gradient with respect to them is captured in the backward pass.

    Args:
        inputs: the tensor.
        tag: the key of the gradient, of the shape and dtype of `inputs`, in `captured_gradients` of the context.

    Returns:
        A tensor of the shape, dtype and values of `inputs`.

    Raises:
        RuntimeError: (in the backward pass) outside of a GradientCaptureContext and of a GradientCaptureTape.
        ValueError: (in the backward pass) a tag that has been used in it.
    """

    @tf.custom_gradient
    def same(tensor: tf.Tensor) -> Any:
        def gradient(upstream: TensorLike) -> tf.Tensor:
            upstream = tf.convert_to_tensor(upstream)
            if (
                save_context.in_save_context()
            ):  # a SavedModel keeps the gradient function, traced outside of any context
                return upstream
            if _captured.value is None:
                raise RuntimeError(
                    f"Expected gradients to be captured in a GradientCaptureContext or by a GradientCaptureTape. "
                    f"Received: the backward pass of {tag!r} outside of them. Use ipu.eager.backprop."
                    f"GradientCaptureTape in place of tf.GradientTape."
                )
            if tag in _captured.value:
                raise ConfigurationError(
                    f"Expected each captured gradient to have a tag of its own. Received: {tag!r} twice in one "
                    f"backward pass. Give each layer that captures a `tag`, and call it once."
                )
            _captured.value[tag] = upstream
            return upstream

        return tf.identity(tensor), gradient

    keep_inline(ops.get_default_graph())  # a gradient of a shared body has no context of its own
    return same(tf.convert_to_tensor(inputs))
