"""Gradients that the stages of a pipeline capture, for the optimizer and for an outfeed queue of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.operators.gradient_capture import GradientCaptureContext, GradientCaptureTape, captures_seen
from ipu._internal.pipelining.errors import PipelineTypeError
from ipu._internal.queues.outfeed_queue import IPUOutfeedQueue
from ipu._internal.types import OptimizerOutput


def check_captures(tape: object, context: object, queue: object) -> None:
    """Checks these arguments of an OptimizerFunctionOutput: raises PipelineTypeError or ConfigurationError."""
    for name, given, kind in (
        ("gradient_capture_context", context, GradientCaptureContext),
        ("captured_gradient_outfeed", queue, IPUOutfeedQueue),
    ):
        if given is not None and not isinstance(given, kind):
            raise PipelineTypeError(f"Expected {name} to be an {kind.__name__}. Received: {given!r}.")
    captures = isinstance(tape, GradientCaptureTape)
    if captures and context is not None:
        raise ConfigurationError(
            "Expected one of a GradientCaptureTape and gradient_capture_context. Received: both. Leave one out."
        )
    if queue is not None and not captures and context is None:
        raise ConfigurationError(
            "Expected gradients to be captured for captured_gradient_outfeed. Received: neither "
            "gradient_capture_context nor a GradientCaptureTape as tape. Pass one."
        )


@contextlib.contextmanager
def capturing(output: OptimizerOutput) -> Iterator[None]:
    """Lets the backward pass of a micro-batch fill the context of `output`, if it has one."""
    context = output.gradient_capture_context
    if context is None:
        yield
        return
    context.captured_gradients.clear()  # of the trace before
    with captures_seen(context.captured_gradients):
        yield


def captured_by(output: OptimizerOutput) -> dict[str, tf.Tensor]:
    """The captured gradients of one micro-batch by tag; raises ConfigurationError for a queue without any."""
    source: Any = output.tape if output.gradient_capture_context is None else output.gradient_capture_context
    found = {tag: tf.convert_to_tensor(value) for tag, value in getattr(source, "captured_gradients", {}).items()}
    if output.captured_gradient_outfeed is not None and not found:
        raise ConfigurationError(
            "Expected stages to capture gradients for captured_gradient_outfeed. Received: none. Call "
            "ipu.grad_util_ops.capture_upstream_gradients in a stage on what the loss depends on."
        )
    return found
