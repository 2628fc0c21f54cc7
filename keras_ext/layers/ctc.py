"""Layers of connectionist temporal classification (CTC): the loss, and predictions by a beam search."""

from __future__ import annotations

from typing import Any

from ipu.ops import nn_ops
from keras_ext.layers.definition import Definition
from keras_ext.types import Tensor


class CTCLoss(Definition):
    """The CTC loss as a layer, for a model whose output is its loss: compile(loss=lambda y_true, y_pred: y_pred).

    Args:
        blank_index: the class of the blank label; negative ones count from the end.
        from_logits: whether the layer gets logits; log probabilities otherwise.
        **kwargs: arguments of every Keras layer.
    """

    settings = ("blank_index", "from_logits")

    def __init__(self, blank_index: int = 0, from_logits: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.from_logits = from_logits

    def call(self, labels: Tensor, data: Tensor, label_length: Tensor, data_length: Tensor) -> Tensor:
        """Computes the losses, whose mean Keras takes.

        Args:
            labels: int32 [batch, max_label_length]; values after a row's length have no effect.
            data: logits or log probabilities, float16 or float32 [max_time, batch, classes].
            label_length: the number of labels in each row, int32 [batch].
            data_length: the number of time steps of each sample, int32 [batch].

        Returns:
            The losses, [batch], of the dtype of `data`.

        Raises:
            ValueError: shapes do not agree, or `blank_index` is no class.
        """
        loss = nn_ops.ctc_loss_v2 if self.from_logits else nn_ops.ctc_loss_with_log_probs
        return loss(labels, data, label_length, data_length, self.blank_index)


class CTCInferenceLayer(Definition):
    """The most likely labels by a beam search.

    Args:
        blank_index: the class of the blank label; negative ones count from the end.
        beam_width: how many paths are followed.
        top_paths: how many paths are returned, at most `beam_width`.
        from_logits: whether the layer gets logits; log probabilities otherwise.
        **kwargs: arguments of every Keras layer.
    """

    settings = ("blank_index", "beam_width", "top_paths", "from_logits")

    def __init__(
        self,
        blank_index: int = 0,
        beam_width: int = 100,
        top_paths: int = 1,
        from_logits: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.blank_index = blank_index
        self.beam_width = beam_width
        self.top_paths = top_paths
        self.from_logits = from_logits

    def call(self, data: Tensor, data_length: Tensor) -> Any:
        """Finds the most likely labels, best first.

        Args:
            data: logits or log probabilities, float16 or float32 [max_time, batch, classes].
            data_length: the number of time steps of each sample, int32 [batch].

        Returns:
            Negative log probabilities, float32 [batch, top_paths]; lengths, int32 [batch, top_paths]; and labels, int32
            [batch, top_paths, max_time], filled with blanks.

        Raises:
            ValueError: shapes do not agree, `blank_index` is no class, or `top_paths` is above `beam_width`.
        """
        name = "ctc_beam_search_decoder" if self.from_logits else "ctc_beam_search_decoder_with_log_probs"
        return getattr(nn_ops, name)(data, data_length, self.beam_width, self.top_paths, self.blank_index)


class CTCPredictionsLayer(CTCInferenceLayer):
    """The single most likely labels of each sample by a beam search.

    Args:
        blank_index, beam_width, from_logits, **kwargs: arguments of CTCInferenceLayer.
        top_paths: has no effect on the result, which is the first path; at most `beam_width`.
    """

    def call(self, data: Tensor, data_length: Tensor) -> Tensor:
        """Finds the most likely labels.

        Args:
            data: logits or log probabilities, float16 or float32 [max_time, batch, classes].
            data_length: the number of time steps of each sample, int32 [batch].

        Returns:
            The labels, int32 [batch, max_time], filled with blanks.

        Raises:
            ValueError: in the cases of CTCInferenceLayer.
        """
        return super().call(data, data_length)[2][:, 0]
