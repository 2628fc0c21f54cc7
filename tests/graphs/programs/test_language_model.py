"""A language model with an LSTM whose state is kept from one batch of a text to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tf_keras.src.layers.rnn import legacy_cells

from tests.graphs.programs.on_host import check, dataset, dense, trained_on_host, variables_of, weights

v1 = tf.compat.v1
SAMPLES, LENGTH, WORDS, UNITS, UPDATES = 4, 6, 12, 8, 10
TEXT = (np.arange(SAMPLES)[:, None] + np.arange(LENGTH * UPDATES + 1) ** 2).astype(np.int32) % WORDS
BATCHES = [(TEXT[:, start : start + LENGTH], TEXT[:, start + 1 :][:, :LENGTH]) for start in range(0, 60, LENGTH)]


def unrolled(x: tf.Tensor, state: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The cell step by step, as a Python loop."""
    h, c = state
    outputs = []
    for word in tf.unstack(x, axis=1):
        with v1.variable_scope("cell", reuse=v1.AUTO_REUSE):
            gates = dense(tf.concat([word, h], 1), 4 * UNITS, "gates")
        i, j, f, o = tf.split(gates, 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.sigmoid(o) * tf.tanh(c)
        outputs.append(h)
    return tf.stack(outputs, 1), [h, c]


def while_loop(x: tf.Tensor, state: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """tf.nn.dynamic_rnn."""
    cell = legacy_cells.LSTMCell(UNITS, initializer=v1.glorot_uniform_initializer(seed=1), state_is_tuple=True)
    outputs, (c, h) = v1.nn.dynamic_rnn(cell, x, initial_state=legacy_cells.LSTMStateTuple(state[1], state[0]))
    return outputs, [h, c]


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed.*:UserWarning")
@pytest.mark.parametrize("recurrent", [unrolled, while_loop])
def test_language_model(recurrent: Any) -> None:
    def perplexity(words: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with v1.variable_scope("model", use_resource=True):
            embedding = weights("embedding", [WORDS, UNITS])
            kept = [
                v1.get_variable(name, [SAMPLES, UNITS], initializer=v1.zeros_initializer(), trainable=False)
                for name in ("h", "c")
            ]
            outputs, state = recurrent(tf.nn.embedding_lookup(embedding, words), [v.read_value() for v in kept])
            logits = dense(tf.reshape(outputs, [-1, UNITS]), WORDS, "softmax")
        for variable, value in zip(kept, state, strict=True):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, variable.assign(value).op)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(targets, [-1]), logits=logits)
        return tf.reduce_mean(losses)

    def optimizer() -> Any:
        return Clipping(0.5)

    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(BATCHES))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    step = v1.train.get_or_create_global_step()

    def body(words: tf.Tensor, targets: tf.Tensor) -> Any:
        loss = perplexity(words, targets)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train = optimizer().minimize(loss, global_step=step)
        return outfeed.enqueue(loss), train

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(UPDATES, body, [], infeed))
    losses = outfeed.dequeue()
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), infeed.initializer])
        for _ in range(2):
            session.run(loop)
        seen, ours = session.run(losses), variables_of(session)
    theirs, expected = trained_on_host(perplexity, optimizer, BATCHES * 2)
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    check(ours, theirs, 1e-3)
    assert seen[-1] < seen[0]


class Clipping(v1.train.GradientDescentOptimizer):
    """Clips gradients by their global norm, as the tutorial's model does."""

    def apply_gradients(self, pairs: Any, *arguments: Any, **options: Any) -> Any:
        gradients, variables = zip(*pairs, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.25)
        return super().apply_gradients(zip(clipped, variables, strict=True), *arguments, **options)
