"""Recurrent layers: the public names of `tensorflow.python.ipu.rnn_ops` (Python API, 18.14.9)."""

from __future__ import annotations

from typing import Any

from ipu._internal.names.namespace import public_names
from ipu._internal.rnn import layers
from ipu._internal.types import TensorLike

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
__getattr__, __dir__ = public_names(__name__, __all__)


class PopnnLSTM(layers.LSTM):
    """Time-major LSTM layer, for functions of graphs and of TensorFlow 2.

    Variables are `<name>/kernel` [input_size + num_units, 4 num_units], with the rows of the inputs first, and
    `<name>/biases` [4, num_units], both for the gates i, f, c, o. A variable scope with reuse shares them.

    Args:
        num_units: the number of units.
        dtype: tf.float16 or tf.float32, of inputs, variables and outputs.
        partials_dtype: tf.float16 or tf.float32: what the cost report assumes for the partials of matrix products.
            Results do not change.
        seed: a Python integer, for the default initializer of `kernel`.
        weights_initializer: initializer or initial value of `kernel`; Glorot uniform over the whole kernel if None.
        bias_initializer: initializer or initial value of `biases`; zeros if None.
        activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid", which is x / 5 + 1 / 2 within 0 and 1.
        recurrent_activation: one of the same names except "relu".
        name: the variable scope; "popnn_lstm" and a number if None.
        return_state: whether a call returns the state beside the outputs.
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.

    Raises:
        ValueError: an argument has another value.
    """

    SCOPE = "popnn_lstm"

    def call(self, inputs: TensorLike, initial_state: Any = None, training: bool = True) -> Any:
        """Runs the forward step for the LSTM layer.

        Args:
            inputs: [time_len, batch_size, input_size].
            initial_state: an LSTMStateTuple(c, h) of tensors [batch_size, num_units]; zeros if None.
            training: accepted; it has no effect.

        Returns:
            The outputs [time_len, batch_size, num_units], and, if `return_state`, an LSTMStateTuple(c, h).

        Raises:
            ValueError: `initial_state` is no LSTMStateTuple, or has other shapes.
        """
        return self.forward(inputs, initial_state)


class PopnnDynamicLSTM(PopnnLSTM):
    """A PopnnLSTM for sequences of different lengths.

    Args:
        num_units: the number of units.
        dtype: tf.float16 or tf.float32, of inputs, variables and outputs.
        partials_dtype: tf.float16 or tf.float32, only for the cost report.
        seed: a Python integer, for the default initializer of `kernel`.
        weights_initializer: initializer or initial value of `kernel`; Glorot uniform if None.
        bias_initializer: initializer or initial value of `biases`; zeros if None.
        activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid".
        recurrent_activation: one of the same names except "relu".
        name: the variable scope; "popnn_dynamic_lstm" and a number if None.
        return_state: whether a call returns the state beside the outputs.
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.
        preserve_final_state: accepted; the state is that at the end of each sequence in any case.

    Raises:
        ValueError: an argument has another value.
    """

    SCOPE = "popnn_dynamic_lstm"

    def __init__(self, *args: Any, preserve_final_state: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def call(  # type: ignore[override]  # as documented
        self, inputs: TensorLike, seq_len: TensorLike, initial_state: Any = None, training: bool = True
    ) -> Any:
        """Runs the LSTM like `PopnnLSTM.call`, with the length of each sequence.

        Args:
            inputs: [time_len, batch_size, input_size].
            seq_len: length of each sequence, int32[batch_size].
            initial_state: an LSTMStateTuple(c, h) of tensors [batch_size, num_units]; zeros if None.
            training: accepted; it has no effect.

        Returns:
            The outputs [time_len, batch_size, num_units], zeros after the end of a sequence, and, if `return_state`, an
            LSTMStateTuple(c, h) of the states at its end.

        Raises:
            ValueError: `initial_state` is no LSTMStateTuple, or it or `seq_len` has another shape.
        """
        return self.forward(inputs, initial_state, seq_len)


class PopnnGRU(layers.GRU):
    """Time-major GRU layer, for functions of graphs and of TensorFlow 2.

    Variables are `<name>/kernel` [input_size + num_units, 3 num_units], with the rows of the inputs first, and
    `<name>/biases` [3, num_units], both for the gates z, r, h.

    Args:
        num_units: the number of units.
        dtype: tf.float16 or tf.float32, of inputs, variables and outputs.
        partials_dtype: tf.float16 or tf.float32, only for the cost report.
        seed: a Python integer, for the default initializer of `kernel`.
        weights_initializer: initializer or initial value of `kernel`; Glorot uniform if None.
        bias_initializer: initializer or initial value of `biases`; zeros if None.
        activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid".
        recurrent_activation: one of the same names except "relu".
        name: the variable scope; "popnn_gru" and a number if None.
        reset_after: whether the reset gate comes after the matrix product of the state. Its biases are
            [3, 2, num_units] then: those of the inputs' product and those of the state's.
        return_state: whether a call returns the state beside the outputs.
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.

    Raises:
        ValueError: an argument has another value.
    """

    SCOPE = "popnn_gru"

    def call(self, inputs: TensorLike, initial_state: TensorLike | None = None, training: bool = True) -> Any:
        """Runs the forward step for the GRU layer.

        Args:
            inputs: [time_len, batch_size, input_size].
            initial_state: [batch_size, num_units]; zeros if None.
            training: accepted; it has no effect.

        Returns:
            The outputs [time_len, batch_size, num_units], and, if `return_state`, the state [batch_size, num_units].

        Raises:
            ValueError: `initial_state` has another shape.
        """
        return self.forward(inputs, initial_state)


class PopnnDynamicGRU(layers.DynamicGRU):
    """A PopnnGRU for sequences of different lengths.

    Its biases are `<name>/bias_r_u` [2, num_units], of the gates z and r, initially 1, and `<name>/bias_c`
    [1, num_units], initially 0; `biases` is not used. They are biases of the inputs' product, also with `reset_after`.

    Args:
        num_units: the number of units.
        dtype: tf.float16 or tf.float32, of inputs, variables and outputs.
        partials_dtype: tf.float16 or tf.float32, only for the cost report.
        seed: a Python integer, for the default initializer of `kernel`.
        weights_initializer: initializer or initial value of `kernel`; Glorot uniform if None.
        bias_initializer: initializer or initial value of `biases`, which has no effect on results.
        activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid".
        recurrent_activation: one of the same names except "relu".
        name: the variable scope; "popnn_dynamic_gru" and a number if None.
        reset_after: whether the reset gate comes after the matrix product of the state.
        return_state: whether a call returns the state beside the outputs.
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.

    Raises:
        ValueError: an argument has another value.
    """

    SCOPE = "popnn_dynamic_gru"

    def call(
        self,
        inputs: TensorLike,
        seq_len: TensorLike,
        initial_state: TensorLike | None = None,
        training: bool = True,
        time_major: bool = True,
    ) -> Any:
        """Runs the forward step for the DynamicGRU layer.

        Args:
            inputs: [time_len, batch_size, input_size], or [batch_size, time_len, input_size] if not `time_major`.
            seq_len: length of each sequence, int32[batch_size].
            initial_state: [batch_size, num_units]; zeros if None.
            training: accepted; it has no effect.
            time_major: whether the first dimension of `inputs` is time.

        Returns:
            The outputs, time-major in any case: [time_len, batch_size, num_units], zeros after the end of a sequence,
            and, if `return_state`, the state at its end, [batch_size, num_units].

        Raises:
            ValueError: `initial_state` or `seq_len` has another shape.
        """
        return self.dynamic(inputs, seq_len, initial_state, time_major)


class PopnnAUGRU(layers.DynamicGRU):
    """A PopnnDynamicGRU whose update gate z is scaled by attention: (1 - score) z.

    Args:
        num_units: the number of units.
        dtype: tf.float16 or tf.float32, of inputs, variables and outputs.
        partials_dtype: tf.float16 or tf.float32, only for the cost report.
        seed: a Python integer, for the default initializer of `kernel`.
        weights_initializer: initializer or initial value of `kernel`; Glorot uniform if None.
        bias_initializer: initializer or initial value of `biases`, which has no effect on results.
        activation: "tanh", "relu", "softmax", "sigmoid" or "hard_sigmoid".
        recurrent_activation: one of the same names except "relu".
        name: the variable scope; "popnn_augru" and a number if None.
        reset_after: whether the reset gate comes after the matrix product of the state.
        return_state: whether a call returns the state beside the outputs.
        options, options_bwd: flags of Poplar's layer, accepted; they have no effect.

    Raises:
        ValueError: an argument has another value.
    """

    SCOPE = "popnn_augru"

    def call(
        self,
        inputs: TensorLike,
        seq_len: TensorLike,
        attention_score: TensorLike,
        initial_state: TensorLike | None = None,
        training: bool = True,
        time_major: bool = True,
    ) -> Any:
        """Runs the GRU like `PopnnDynamicGRU.call`, with the scores of all time steps.

        Args:
            inputs: [time_len, batch_size, input_size], or [batch_size, time_len, input_size] if not `time_major`.
            seq_len: length of each sequence, int32[batch_size].
            attention_score: [time_len, batch_size], or [batch_size, time_len] if not `time_major`.
            initial_state: [batch_size, num_units]; zeros if None.
            training: accepted; it has no effect.
            time_major: whether the first dimension of `inputs` and of `attention_score` is time.

        Returns:
            The outputs, time-major in any case: [time_len, batch_size, num_units], zeros after the end of a sequence,
            and, if `return_state`, the state at its end, [batch_size, num_units].

        Raises:
            ValueError: `initial_state`, `seq_len` or `attention_score` has another shape.
        """
        return self.dynamic(inputs, seq_len, initial_state, time_major, attention_score)
