"""One time step of an LSTM and of a GRU. The engine moves products of the inputs out of the loop over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from ipu.scopes import partials_type

Tensors = Sequence[tf.Tensor]
Step = Callable[[Tensors, Tensors], Tensors]
"""A function that computes the states after a time step from its inputs and the states before it."""


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    """x / 5 + 1 / 2 within 0 and 1, as PopLibs has it."""
    return tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0)


ACTIVATIONS = {
    "tanh": tf.tanh,
    "relu": tf.nn.relu,
    "softmax": tf.nn.softmax,
    "sigmoid": tf.sigmoid,
    "hard_sigmoid": hard_sigmoid,
}


@dataclass(frozen=True)
class Cell:
    """The functions of a recurrent layer's gates, by the names of `ACTIVATIONS`."""

    activation: str
    recurrent_activation: str
    partials: object
    """NumPy type of the partials of matrix products, for the cost report."""

    def product(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """[B, m] times [m, n]."""
        with partials_type(self.partials):
            return tf.matmul(x, kernel)

    def lstm(self, kernels: Tensors, bias: tf.Tensor) -> Step:
        """The step of an LSTM: inputs [B, I], states h and c of [B, U].

        `kernels`, of the inputs [I, 4U] and of h [U, 4U], and `bias` [4U] are for the gates i, f, c, o.
        """
        act, sigmoid = ACTIVATIONS[self.activation], ACTIVATIONS[self.recurrent_activation]

        def step(inputs: Tensors, states: Tensors) -> Tensors:
            h, c = states
            gates = self.product(inputs[0], kernels[0]) + self.product(h, kernels[1]) + bias
            i, f, candidate, o = tf.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * act(candidate)
            return sigmoid(o) * act(c), c

        return step

    def gru(self, kernels: Tensors, bias: tf.Tensor, recurrent_bias: tf.Tensor | None = None) -> Step:
        """The step of a GRU: inputs [B, I], the state h of [B, U].

        `kernels`, of the inputs [I, 3U] and of h [U, 3U], and `bias` [3U] are for the gates z, r, h. The
        `recurrent_bias` [3U] of the state's product is there if the reset gate comes after it. A second input [B] is
        the attention score, which scales the update: z becomes (1 - score) z.
        """
        act, sigmoid = ACTIVATIONS[self.activation], ACTIVATIONS[self.recurrent_activation]
        of_inputs, kernel = kernels
        units = kernel.shape.as_list()[0]
        if recurrent_bias is None:
            of_gates, of_candidate = kernel[:, : 2 * units], kernel[:, 2 * units :]

        def step(inputs: Tensors, states: Tensors) -> Tensors:
            (h,) = states
            x = self.product(inputs[0], of_inputs) + bias
            if recurrent_bias is None:
                z, r = map(sigmoid, tf.split(x[:, : 2 * units] + self.product(h, of_gates), 2, axis=1))
                candidate = x[:, 2 * units :] + self.product(r * h, of_candidate)
            else:
                recurrent = self.product(h, kernel) + recurrent_bias
                z, r = map(sigmoid, tf.split(x[:, : 2 * units] + recurrent[:, : 2 * units], 2, axis=1))
                candidate = x[:, 2 * units :] + r * recurrent[:, 2 * units :]
            if len(inputs) > 1:
                z *= 1.0 - inputs[1][:, None]
            return (z * h + (1.0 - z) * act(candidate),)

        return step
