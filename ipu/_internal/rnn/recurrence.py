"""A loop over the time steps of sequences."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu._internal.rnn.cells import Step, Tensors


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
