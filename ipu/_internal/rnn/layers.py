"""The forward steps of the layers of rnn_ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.rnn_cell import LSTMStateTuple

from engine.errors import ConfigurationError
from ipu._internal.rnn.cells import Step, Tensors
from ipu._internal.rnn.layer import RecurrentLayer, checked_lengths
from ipu._internal.types import TensorLike, Variable


class LSTM(RecurrentLayer):
    """Gates i, f, c, o, and states h and c."""

    GATES = 4

    def forward(self, inputs: TensorLike, initial_state: Any, seq_len: TensorLike | None = None) -> Any:
        """Outputs [T, B, U] and an LSTMStateTuple, of the class that `initial_state` has.

        Args:
            inputs: [T, B, I], of the layer's dtype.
            initial_state: an LSTMStateTuple(c, h) of tensors [B, U]; zeros if None.
            seq_len: length of each sequence, int32[B]; None if all are T.

        Returns:
            The outputs, and the state if `return_state`.

        Raises:
            ValueError: `initial_state` is no LSTMStateTuple, or it or `seq_len` has another shape.
        """
        inputs = tf.convert_to_tensor(inputs, self.dtype)
        lengths = None if seq_len is None else checked_lengths(seq_len, inputs)
        if initial_state is not None and getattr(initial_state, "_fields", None) != ("c", "h"):
            raise ConfigurationError(
                f"Expected initial_state to be a tf.compat.v1.nn.rnn_cell.LSTMStateTuple(c, h). Received: "
                f"{type(initial_state).__name__}. With Keras 3 it is tensorflow.python.ops.rnn_cell.LSTMStateTuple."
            )
        c, h = (self._state(state, inputs) for state in initial_state or (None, None))
        step = self.cell.lstm(self._kernels(), tf.reshape(self.biases, [-1]))
        sequence, (h, c) = recurrence(step, [inputs], (h, c), lengths)
        return self._result(sequence, (LSTMStateTuple if initial_state is None else type(initial_state))(c, h))

    def state_shape(self, batch_size: int) -> LSTMStateTuple:
        """Shape of the states c and h: a tuple of two [batch_size, num_units].

        Args:
            batch_size: the number of sequences.

        Returns:
            An LSTMStateTuple of lists.
        """
        return LSTMStateTuple([batch_size, self.num_units], [batch_size, self.num_units])


class GRU(RecurrentLayer):
    """Gates z, r, h, and one state."""

    GATES = 3

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: int | None = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        name: str | None = None,
        reset_after: bool = False,
        *,
        return_state: bool = True,
        options: dict[str, Any] | None = None,
        options_bwd: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            num_units,
            dtype,
            partials_dtype,
            seed,
            weights_initializer,
            bias_initializer,
            activation,
            recurrent_activation,
            name,
            return_state=return_state,
        )
        self.reset_after = reset_after

    def forward(self, inputs: TensorLike, initial_state: TensorLike | None) -> Any:
        """Outputs [T, B, U] and the state [B, U].

        Args:
            inputs: [T, B, I], of the layer's dtype.
            initial_state: [B, U]; zeros if None.

        Returns:
            The outputs, and the state if `return_state`.

        Raises:
            ValueError: `initial_state` has another shape.
        """
        inputs = tf.convert_to_tensor(inputs, self.dtype)
        biases = tf.convert_to_tensor(self.biases)
        each = tf.unstack(biases, axis=1) if self.reset_after else [biases]
        step = self.cell.gru(self._kernels(), *(tf.reshape(bias, [-1]) for bias in each))
        sequence, (h,) = recurrence(step, [inputs], [self._state(initial_state, inputs)])
        return self._result(sequence, h)

    def state_shape(self, batch_size: int) -> list[int]:
        """Shape of the state: [batch_size, num_units].

        Args:
            batch_size: the number of sequences.

        Returns:
            A list of two integers.
        """
        return [batch_size, self.num_units]


class DynamicGRU(GRU):
    """A GRU for sequences of different lengths, with biases of its own beside `biases`, which it leaves unused."""

    bias_r_u: Variable = None
    bias_c: Variable = None

    def _create(self) -> None:
        super()._create()
        self.bias_r_u = self._variable("bias_r_u", [2, self.num_units], 1.0)
        self.bias_c = self._variable("bias_c", [1, self.num_units], 0.0)

    def dynamic(
        self,
        inputs: TensorLike,
        seq_len: TensorLike,
        initial_state: TensorLike | None,
        time_major: bool,
        attention_score: TensorLike | None = None,
    ) -> Any:
        """Outputs [T, B, U], time-major in any case, and the state [B, U] at the end of each sequence.

        Args:
            inputs: [T, B, I], or [B, T, I] if not `time_major`.
            seq_len: length of each sequence, int32[B].
            initial_state: [B, U]; zeros if None.
            time_major: whether the first dimension of `inputs` and of `attention_score` is time.
            attention_score: [T, B], or [B, T] if not `time_major`, by which update gates are scaled; None for none.

        Returns:
            The outputs, and the state if `return_state`.

        Raises:
            ValueError: `initial_state`, `seq_len` or `attention_score` has another shape.
        """
        tensors = [tf.convert_to_tensor(t, self.dtype) for t in (inputs, attention_score) if t is not None]
        if not time_major:
            tensors = [tf.transpose(t, [1, 0, *range(2, t.shape.rank)]) for t in tensors]
        inputs, *scores = tensors
        if scores and not scores[0].shape.is_compatible_with(inputs.shape[:2]):
            layout = "[time_len, batch_size]" if time_major else "[batch_size, time_len]"
            raise ConfigurationError(
                f"Expected an attention_score of shape {layout}, as time_major={time_major}, for inputs of time_len = "
                f"{inputs.shape.as_list()[0]} and batch_size = {inputs.shape.as_list()[1]}. "
                f"Received: {tf.convert_to_tensor(attention_score).shape}."
            )
        bias = tf.reshape(tf.concat([self.bias_r_u, self.bias_c], 0), [-1])
        step = self.cell.gru(self._kernels(), bias, tf.zeros_like(bias) if self.reset_after else None)
        lengths = checked_lengths(seq_len, inputs)
        sequence, (h,) = recurrence(step, [inputs, *scores], [self._state(initial_state, inputs)], lengths)
        return self._result(sequence, h)


def recurrence(step: Step, inputs: Tensors, states: Tensors, lengths: tf.Tensor | None = None) -> tuple[Any, Tensors]:
    """The first state after each time step, [T, B, ...], and all states after the last.

    Args:
        step: the cell.
        inputs: tensors [T, B, ...], of which each step gets those of its time.
        states: the initial states, [B, ...].
        lengths: int32[B], the time steps of each sequence. After them its states stay, and outputs are zeros.
    """
    known = inputs[0].shape.as_list()[0]
    times = tf.shape(inputs[0])[0] if known is None else known
    arrays = [tf.TensorArray(x.dtype, times, element_shape=x.shape[1:]).unstack(x) for x in inputs]
    outputs = tf.TensorArray(states[0].dtype, times, element_shape=states[0].shape)

    def body(time: tf.Tensor, outputs: tf.TensorArray, *before: tf.Tensor) -> tuple[Any, ...]:
        after = step([array.read(time) for array in arrays], before)
        if lengths is not None:
            after = [tf.where((time < lengths)[:, None], new, old) for new, old in zip(after, before, strict=True)]
        return time + 1, outputs.write(time, after[0]), *after

    _, outputs, *states = tf.while_loop(
        lambda time, *_: time < times, body, (tf.constant(0), outputs, *states), maximum_iterations=times
    )
    sequence = outputs.stack()
    if lengths is not None:
        inside = (tf.range(times)[:, None] < lengths)[:, :, None]
        sequence = tf.where(inside, sequence, tf.zeros_like(sequence))
    return sequence, states
