"""The layers of rnn_ops against the same recurrences step by step in float64: outputs, states and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops.rnn_cell import LSTMStateTuple

from engine.errors import ConfigurationError
from ipu import ipu_compiler, rnn_ops
from ipu.ipu_strategy import IPUStrategy

v1 = tf.compat.v1
TIME, BATCH, INPUTS, UNITS = 5, 3, 7, 4
LENGTHS = [5, 0, 3]
FUNCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "tanh": tf.tanh,
    "relu": tf.nn.relu,
    "softmax": tf.nn.softmax,
    "sigmoid": tf.sigmoid,
    "hard_sigmoid": lambda x: tf.minimum(tf.maximum(0.2 * x + 0.5, 0.0), 1.0),
}


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def lstm_step(x: Any, states: Any, weights: Any, act: Any, sigmoid: Any) -> Any:
    h, c = states
    i, f, g, o = tf.split(tf.concat([x, h], 1) @ weights["kernel"] + tf.reshape(weights["biases"], [-1]), 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * act(g)
    return [sigmoid(o) * act(c), c]


def gru_step(x: Any, states: Any, weights: Any, act: Any, sigmoid: Any, score: Any = 0.0) -> Any:
    (h,) = states
    wz, wr, wh = tf.split(weights["kernel"], 3, 1)
    if "bias_c" in weights:
        bz, br, bh = tf.unstack(tf.concat([weights["bias_r_u"], weights["bias_c"]], 0))
    elif weights["biases"].shape.rank == 3:
        (bz, sz), (br, sr), (bh, sh) = (tf.unstack(b) for b in tf.unstack(weights["biases"]))
        bz, br = bz + sz, br + sr
    else:
        bz, br, bh = tf.unstack(weights["biases"])
    z, r = (sigmoid(tf.concat([x, h], 1) @ w + b) for w, b in ((wz, bz), (wr, br)))
    z = (1.0 - score) * z
    if weights["biases"].shape.rank == 3:
        recurrent = h @ wh[INPUTS:] + (0.0 if "bias_c" in weights else sh)
        return [z * h + (1.0 - z) * act(x @ wh[:INPUTS] + bh + r * recurrent)]
    return [z * h + (1.0 - z) * act(tf.concat([x, r * h], 1) @ wh + bh)]


def step_by_step(layer: Any, weights: Any, x: Any, states: Any, lengths: Any, scores: Any) -> Any:
    """Outputs [T, B, U] and the states at the end."""
    functions = [FUNCTIONS[layer.cell.activation], FUNCTIONS[layer.cell.recurrent_activation]]
    outputs = []
    for time in range(TIME):
        more = [] if scores is None else [scores[time][:, None]]
        step = gru_step if len(states) == 1 else lstm_step
        after = step(x[time], states, weights, *functions, *more)
        inside = np.array(lengths)[:, None] > time
        outputs.append(tf.where(inside, after[0], 0.0))
        states = [tf.where(inside, new, old) for new, old in zip(after, states, strict=True)]
    return tf.stack(outputs), states


CASES = {
    "LSTM": (rnn_ops.PopnnLSTM, {}),
    "LSTM-float16": (rnn_ops.PopnnLSTM, {"dtype": tf.float16}),
    "LSTM-relu": (rnn_ops.PopnnLSTM, {"activation": "relu", "recurrent_activation": "hard_sigmoid"}),
    "LSTM-softmax": (rnn_ops.PopnnLSTM, {"activation": "softmax", "recurrent_activation": "softmax"}),
    "DynamicLSTM": (rnn_ops.PopnnDynamicLSTM, {}),
    "GRU": (rnn_ops.PopnnGRU, {"activation": "hard_sigmoid", "recurrent_activation": "tanh"}),
    "GRU-reset_after": (rnn_ops.PopnnGRU, {"reset_after": True}),
    "GRU-float16": (rnn_ops.PopnnGRU, {"reset_after": True, "dtype": tf.float16, "partials_dtype": tf.float16}),
    "DynamicGRU": (rnn_ops.PopnnDynamicGRU, {}),
    "DynamicGRU-float16": (rnn_ops.PopnnDynamicGRU, {"dtype": tf.float16}),
    "AUGRU": (rnn_ops.PopnnAUGRU, {}),
    "AUGRU-reset_after": (rnn_ops.PopnnAUGRU, {"reset_after": True}),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_state", [False, True])
def test_outputs_states_and_gradients(case: str, with_state: bool) -> None:
    make, options = CASES[case]
    strategy = IPUStrategy()
    with strategy.scope():
        layer = make(UNITS, **options)
        layer.build([None, None, INPUTS])
    for number, variable in enumerate(layer.variables):
        variable.assign(tf.cast(0.5 * draw(*variable.shape, seed=number), layer.dtype))
    is_lstm, dynamic, attends = "LSTM" in case, "Dynamic" in case or "AU" in case, "AU" in case
    x, states = draw(TIME, BATCH, INPUTS, seed=9), [draw(BATCH, UNITS, seed=10 + k) for k in range(1 + is_lstm)]
    states = states if with_state else [np.zeros_like(s) for s in states]
    scores = [1.0 / (1.0 + draw(TIME, BATCH, seed=12) ** 2)] if attends else []
    factors = [draw(TIME, BATCH, UNITS, seed=13), *(draw(BATCH, UNITS, seed=14 + k) for k in range(1 + is_lstm))]
    given = [x, *scores, *states]

    @tf.function(jit_compile=True)
    def results(x: Any, *others: Any) -> Any:
        scores, states = others[: int(attends)], others[int(attends) :]
        with tf.GradientTape() as tape:
            tape.watch([x, others])
            state = None if not with_state else LSTMStateTuple(states[1], states[0]) if is_lstm else states[0]
            more = [tf.constant(LENGTHS)] if dynamic else []
            outputs, after = layer(x, *more, *scores, initial_state=state)
            after = [after.h, after.c] if is_lstm else [after]
            loss = tf.add_n(
                [tf.reduce_sum(r * tf.cast(f, r.dtype)) for r, f in zip([outputs, *after], factors, strict=True)]
            )
        sources = [x, *scores, *(states if with_state else ()), *layer.trainable_variables]
        return [outputs, *after, *(g for g in tape.gradient(loss, sources) if g is not None)]

    ours = strategy.run(results, [tf.cast(each, layer.dtype) for each in given])

    exact = {v.name.split("/")[-1].split(":")[0]: tf.cast(v, tf.float64) for v in layer.trainable_variables}
    given = [tf.constant(each) for each in given]
    with tf.GradientTape() as tape:
        tape.watch([given, exact])
        states = given[1 + attends :]
        lengths = LENGTHS if dynamic else [TIME] * BATCH
        outputs, after = step_by_step(layer, exact, given[0], states, lengths, given[1] if attends else None)
        loss = tf.add_n([tf.reduce_sum(r * f) for r, f in zip([outputs, *after], factors, strict=True)])
    sources = [*given[: None if with_state else 1 + attends], *exact.values()]
    theirs = [outputs, *after, *(g for g in tape.gradient(loss, sources) if g is not None)]
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == layer.dtype
        tolerance = 0.02 if layer.dtype == tf.float16 else 2e-5
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_variables_are_shared_and_trained_in_graphs() -> None:
    """Variables have names, shapes and initial values; a reused scope shares them, and a second layer has its own."""

    def net(x: tf.Tensor) -> Any:
        with v1.variable_scope("model"):
            outputs, _ = rnn_ops.PopnnLSTM(4, seed=1)(x)
            outputs, state = rnn_ops.PopnnGRU(3, name="second", reset_after=True, bias_initializer=0.5)(outputs)
            rnn_ops.PopnnLSTM(4)(x)
        with v1.variable_scope("model", reuse=True):
            again, _ = rnn_ops.PopnnLSTM(4)(x)
            again, _ = rnn_ops.PopnnGRU(3, name="second", reset_after=True)(again)
        rnn_ops.PopnnAUGRU(2)(outputs, tf.constant([1, 5, 2]), tf.zeros([TIME, BATCH]))
        loss = tf.reduce_mean(tf.square(outputs)) + tf.reduce_mean(tf.square(state))
        return loss, tf.reduce_max(tf.abs(outputs - again)), v1.train.GradientDescentOptimizer(1.0).minimize(loss)

    x = draw(TIME, BATCH, INPUTS).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        fed = v1.placeholder(tf.float32, [TIME, None, INPUTS])
        program = ipu_compiler.compile(net, [fed])
        session.run(v1.global_variables_initializer())
        before = {v.op.name: session.run(v) for v in v1.global_variables()}
        losses = [session.run(program, {fed: x}) for _ in range(5)]
        after = session.run(v1.global_variables())
    assert {name: value.shape for name, value in before.items()} == {
        "model/popnn_lstm/kernel": (INPUTS + 4, 16),
        "model/popnn_lstm/biases": (4, 4),
        "model/second/kernel": (4 + 3, 9),
        "model/second/biases": (3, 2, 3),
        "model/popnn_lstm_1/kernel": (INPUTS + 4, 16),
        "model/popnn_lstm_1/biases": (4, 4),
        "popnn_augru/kernel": (3 + 2, 6),
        "popnn_augru/biases": (3, 2),
        "popnn_augru/bias_r_u": (2, 2),
        "popnn_augru/bias_c": (1, 2),
    }
    limit = np.sqrt(6 / (INPUTS + 4 + 16))
    assert 0.9 * limit < np.abs(before["model/popnn_lstm/kernel"]).max() <= limit
    assert (before["model/second/biases"] == 0.5).all() and not before["model/popnn_lstm/biases"].any()
    assert (before["popnn_augru/bias_r_u"] == 1).all() and not before["popnn_augru/bias_c"].any()
    assert losses[-1][0] < losses[0][0] and all(difference == 0 for _, difference in losses)
    changed = [name for (name, old), new in zip(before.items(), after, strict=True) if (old != new).any()]
    assert changed == list(before)[:4]


def test_errors() -> None:
    x = tf.zeros([TIME, BATCH, INPUTS])
    for expected, call in {
        "activation to be one of": lambda: rnn_ops.PopnnLSTM(4, activation="selu"),
        "recurrent_activation to be one of": lambda: rnn_ops.PopnnGRU(4, recurrent_activation="relu"),
        "dtype to be one of float32, float16": lambda: rnn_ops.PopnnGRU(4, dtype=tf.float64),
        "num_units": lambda: rnn_ops.PopnnGRU(0),
        "known input_size": lambda: rnn_ops.PopnnLSTM(4).build([TIME, BATCH, None]),
        "inputs of shape": lambda: rnn_ops.PopnnLSTM(4).build([BATCH, INPUTS]),
        "LSTMStateTuple": lambda: rnn_ops.PopnnLSTM(4)(x, (tf.zeros([BATCH, 4]), tf.zeros([BATCH, 4]))),
        "initial_state of shape": lambda: rnn_ops.PopnnGRU(4)(x, tf.zeros([4, BATCH])),
        "seq_len of shape": lambda: rnn_ops.PopnnDynamicGRU(4)(x, [1]),
        r"shape \[time_len, batch_size\]": lambda: rnn_ops.PopnnAUGRU(4)(x, LENGTHS, tf.zeros([BATCH, TIME])),
    }.items():
        with pytest.raises(ConfigurationError, match=expected):
            call()


def test_batch_major_inputs_and_state_shapes() -> None:
    layer = rnn_ops.PopnnAUGRU(UNITS, seed=2)
    x, scores = draw(TIME, BATCH, INPUTS).astype(np.float32), draw(TIME, BATCH, seed=1).astype(np.float32)
    outputs, state = layer(x, LENGTHS, scores)
    transposed, same_state = layer(x.swapaxes(0, 1), LENGTHS, scores.T, time_major=False)
    np.testing.assert_array_equal(outputs, transposed)
    np.testing.assert_array_equal(state, same_state)
    assert layer.state_shape(2) == [2, UNITS]
    assert rnn_ops.PopnnLSTM(UNITS).state_shape(2) == LSTMStateTuple([2, UNITS], [2, UNITS])
    assert rnn_ops.PopnnGRU(UNITS, return_state=False)(x).shape == (TIME, BATCH, UNITS)
