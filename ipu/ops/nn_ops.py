"""Popnn primitive neural network operators: the public names of `tensorflow.python.ipu.nn_ops` (18.14.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from engine.errors import ConfigurationError
from ipu._internal.names.namespace import public_names
from ipu._internal.operators import ctc, sampled_losses
from ipu._internal.operators.checks import floating, in_float32
from ipu._internal.operators.ctc_beam_search import decoded
from ipu._internal.types import TensorLike

__all__ = [
    "ctc_beam_search_decoder",
    "ctc_beam_search_decoder_with_log_probs",
    "ctc_loss",
    "ctc_loss_v2",
    "ctc_loss_with_log_probs",
    "ctc_loss_with_logits",
    "gelu",
    "hard_sigmoid",
    "multi_conv",
    "nce_loss",
    "sampled_softmax_loss",
    "softmax",
    "swish",
]
__getattr__, __dir__ = public_names(__name__, __all__)


def gelu(x: TensorLike, approximate: bool = True, name: str | None = None) -> tf.Tensor:
    """Gaussian error linear unit.

    Args:
        x: the input tensor, of a floating-point type.
        approximate: whether to use tanh, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), or else erf.
        name: optional op name.

    Returns:
        A tensor like `x`, computed in float32 and rounded once.
    """
    return in_float32(lambda x: tf.nn.gelu(x, approximate), x, name, "gelu")


def hard_sigmoid(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """0.2 * x + 0.5, clipped to [0, 1].

    Args:
        x: a tensor of a floating-point type and any shape.
        name: optional name of the operation.

    Returns:
        A tensor like `x`, computed in float32 and rounded once.
    """
    return in_float32(lambda x: tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0), x, name, "hard_sigmoid")


def swish(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """x * sigmoid(x).

    Args:
        x: a tensor of a floating-point type and any shape.
        name: optional name of the operation.

    Returns:
        A tensor like `x`, computed in float32 and rounded once.
    """
    return in_float32(tf.nn.silu, x, name, "swish")


def softmax(x: TensorLike, stable: bool = False, name: str | None = None) -> tf.Tensor:
    """exp(x) over its sum along the last dimension.

    Args:
        x: a tensor of a floating-point type and any shape.
        stable: accepted; the largest element is subtracted in any case.
        name: optional name of the operation.

    Returns:
        A tensor like `x`, computed in float32 and rounded once.
    """
    return in_float32(tf.nn.softmax, x, name, "softmax")


def multi_conv(func: Callable[..., Any] | None = None, options: Mapping[str, str] | None = None) -> Any:
    """A function decorator for convolutions that do not depend on each other.

    The engine runs such convolutions in any function next to each other, so the result is the function itself.

    Args:
        func: a function of positional tensors that returns one or more tensors.
        options: Poplar's options for multi-convolutions, which have no effect here.

    Returns:
        `func` itself; a decorator if `func` is None.

    Raises:
        ValueError: `options` is no dictionary.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ConfigurationError(f"Expected options to be a dictionary. Received: {options!r}.")
    return multi_conv if func is None else func


def ctc_loss_v2(
    labels: TensorLike,
    logits: TensorLike,
    label_length: TensorLike,
    logit_length: TensorLike,
    blank_index: int,
    out_dtype: tf.DType | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Calculates the CTC (connectionist temporal classification) loss of logits.

    Args:
        labels: int32 [batch_size, max_label_length]; values after a row's length have no effect.
        logits: float16 or float32 [max_time, batch_size, num_classes].
        label_length: the number of labels in each row, int32 [batch_size].
        logit_length: the number of time steps of each sample, int32 [batch_size].
        blank_index: the class of the blank label; negative ones count from the end.
        out_dtype: the type of the result. Default: that of `logits`.
        name: optional op name.

    Returns:
        The losses, [batch_size], computed in float32. A sample whose labels do not fit into its time steps has an
        infinite loss and a gradient of zero. A second derivative raises LookupError.

    Raises:
        ValueError: shapes do not agree, `blank_index` is no class, or `out_dtype` is float16 for float32 logits.
    """
    return ctc.loss_of_logits(labels, logits, label_length, logit_length, blank_index, out_dtype, name)


def ctc_loss_with_log_probs(
    labels: TensorLike,
    data: TensorLike,
    label_length: TensorLike,
    data_length: TensorLike,
    blank_index: int,
    out_dtype: tf.DType | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """`ctc_loss_v2` of `data`, log probabilities [max_time, batch_size, num_classes], as from tf.nn.log_softmax.

    Args:
        labels: int32 [batch_size, max_label_length]; values after a row's length have no effect.
        data: float16 or float32 [max_time, batch_size, num_classes].
        label_length: the number of labels in each row, int32 [batch_size].
        data_length: the number of time steps of each sample, int32 [batch_size].
        blank_index: the class of the blank label; negative ones count from the end.
        out_dtype: the type of the result. Default: that of `data`.
        name: optional op name.

    Returns:
        The losses, [batch_size], as those of `ctc_loss_v2`.

    Raises:
        ValueError: shapes do not agree, `blank_index` is no class, or `out_dtype` is float16 for float32 data.
    """
    return ctc.loss_of_log_probs(labels, data, label_length, data_length, blank_index, out_dtype, name)


ctc_loss_with_logits = ctc_loss_v2
"""The name of older programs."""
ctc_loss = ctc_loss_with_log_probs
"""The name of older programs."""


def ctc_beam_search_decoder(
    logits: TensorLike,
    logits_lengths: TensorLike,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Calculates CTC (connectionist temporal classification) predictions.

    Args:
        logits: float16 or float32 [max_time, batch_size, num_classes].
        logits_lengths: the number of time steps of each sample, int32 [batch_size].
        beam_width: how many paths are followed.
        top_paths: how many paths are returned, at most `beam_width`.
        blank_index: the class of the blank label; negative ones count from the end.
        name: optional op name.

    Returns:
        The most likely label sequences, best first: negative log probabilities, float32 [batch_size, top_paths];
        lengths, int32 [batch_size, top_paths]; labels, int32 [batch_size, top_paths, max_time], filled with blanks.
        Missing sequences have an infinite negative log probability.

    Raises:
        ValueError: shapes do not agree, `blank_index` is no class, or `top_paths` is above `beam_width`.
    """
    log_probs = tf.nn.log_softmax(tf.cast(floating(logits, "logits"), tf.float32))
    return decoded(log_probs, logits_lengths, beam_width, top_paths, blank_index, name)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: TensorLike,
    input_lengths: TensorLike,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`ctc_beam_search_decoder` of log probabilities [max_time, batch_size, num_classes].

    Args:
        log_probs: float16 or float32 [max_time, batch_size, num_classes], as from tf.nn.log_softmax.
        input_lengths: the number of time steps of each sample, int32 [batch_size].
        beam_width: how many paths are followed.
        top_paths: how many paths are returned, at most `beam_width`.
        blank_index: the class of the blank label; negative ones count from the end.
        name: optional op name.

    Returns:
        Negative log probabilities, float32 [batch_size, top_paths]; lengths, int32 [batch_size, top_paths]; labels,
        int32 [batch_size, top_paths, max_time], as those of `ctc_beam_search_decoder`.

    Raises:
        ValueError: shapes do not agree, `blank_index` is no class, or `top_paths` is above `beam_width`.
    """
    return decoded(log_probs, input_lengths, beam_width, top_paths, blank_index, name)


def nce_loss(
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: tuple[TensorLike, TensorLike, TensorLike] | None = None,
    name: str = "nce_loss",
) -> tf.Tensor:
    """Computes the noise-contrastive estimation training loss.

    Args:
        weights: [num_classes, dim], or a list of tensors whose concatenation has this shape.
        biases: [num_classes].
        labels: the target classes, integers [batch_size, num_true].
        inputs: [batch_size, dim].
        num_sampled: the number of different negative classes drawn for the whole batch.
        num_classes: the number of possible classes.
        num_true: the number of target classes of a sample.
        sampled_values: (candidates [num_sampled], the expected counts of `labels` [batch_size, num_true], and of the
            candidates), as a candidate sampler returns them. By default a log-uniform sampler on the device draws them:
            labels should be in the order of decreasing frequency.
        name: optional op name.

    Returns:
        The losses, [batch_size], of the type of `inputs`.

    Raises:
        ValueError: shapes do not agree with the numbers, or there are fewer classes than are to be drawn.
    """
    arguments = (weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values)
    return sampled_losses.nce_loss(arguments, name)


def sampled_softmax_loss(
    weights: TensorLike,
    biases: TensorLike,
    labels: TensorLike,
    inputs: TensorLike,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: tuple[TensorLike, TensorLike, TensorLike] | None = None,
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> tf.Tensor:
    """Computes the sampled softmax training loss; a candidate that is a sample's target does not count for it.

    Args:
        weights: [num_classes, dim], or a list of tensors whose concatenation has this shape.
        biases: [num_classes].
        labels: the target classes, integers [batch_size, num_true].
        inputs: [batch_size, dim].
        num_sampled: the number of different classes drawn for the whole batch.
        num_classes: the number of possible classes.
        num_true: the number of target classes of a sample.
        sampled_values: candidates and expected counts, as for `nce_loss`; by default the device draws them.
        name: optional op name.
        seed: TensorFlow's operation seed for drawing candidates; no effect with `sampled_values`.

    Returns:
        The losses, [batch_size], of the type of `inputs`.

    Raises:
        ValueError: shapes do not agree with the numbers, or there are fewer classes than are to be drawn.
    """
    arguments = (weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values)
    return sampled_losses.sampled_softmax_loss(arguments, name, seed)
