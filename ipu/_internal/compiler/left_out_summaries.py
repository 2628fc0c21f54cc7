"""Summaries of TensorFlow 1 in programs: they are left out, with a warning, unless a program returns them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

LOGGER = logging.getLogger("ipu")
SUMMARIES = {
    "AudioSummaryV2": "audio_summary_v2",
    "HistogramSummary": "histogram_summary",
    "ImageSummary": "image_summary",
    "MergeSummary": "merge_summary",
    "ScalarSummary": "scalar_summary",
    "TensorSummary": "tensor_summary",
    "TensorSummaryV2": "tensor_summary_v2",
}
"""The types of the operations, and the functions that make them."""


def summary(original: Callable[..., tf.Tensor], *args: Any, **kwargs: Any) -> tf.Tensor:
    """A summary as in TensorFlow, which no session can evaluate."""
    made = original(*args, **kwargs)
    LOGGER.warning(
        "%r: programs leave out the summaries in them. Enqueue the tensor in an outfeed queue, and summarize what "
        "dequeue() returns.",
        made.op.name,
    )
    return made
