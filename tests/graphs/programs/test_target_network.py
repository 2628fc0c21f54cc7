"""Q-learning: actions of one program, updates by another one, and a target network copied by assignments between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.programs.on_host import check, dense, variables_of

v1 = tf.compat.v1
STATES, ACTIONS, STEPS = 4, 3, 12
Compile = Callable[[Callable[..., Any], Sequence[tf.Tensor]], Any]


def values(state: tf.Tensor, network: str) -> tf.Tensor:
    """The value of each action, [samples, ACTIONS]."""
    with v1.variable_scope(network, reuse=v1.AUTO_REUSE):
        return dense(tf.nn.relu(dense(state, 8, "hidden")), ACTIONS, "values", 1)


def training_step(state: tf.Tensor, action: tf.Tensor, reward: tf.Tensor, following: tf.Tensor) -> Any:
    target = tf.stop_gradient(reward + 0.9 * tf.reduce_max(values(following, "target"), 1))
    taken = tf.reduce_sum(values(state, "online") * tf.one_hot(action, ACTIONS), 1)
    loss = v1.losses.huber_loss(target, taken)
    return loss, v1.train.AdamOptimizer(0.01).minimize(loss, var_list=v1.trainable_variables("online"))


def learned(compile: Compile) -> tuple[list[Any], dict[str, np.ndarray]]:
    """The actions and losses of an episode, and the variables after it."""
    state, following = (v1.placeholder(tf.float32, [None, STATES]) for _ in range(2))
    action, reward = v1.placeholder(tf.int32, [None]), v1.placeholder(tf.float32, [None])
    (choice,) = compile(lambda state: tf.argmax(values(state, "online"), 1), [state])
    (loss,) = compile(training_step, [state, action, reward, following])
    networks = (v1.trainable_variables(network) for network in ("target", "online"))
    copied = tf.group(*(target.assign(online) for target, online in zip(*networks, strict=True)))
    random, seen, history = np.random.default_rng(0), np.ones([1, STATES]), []
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in range(STEPS):
            if step % 4 == 0:
                session.run(copied)
            chosen = session.run(choice, {state: seen})
            new = np.tanh(0.9 * seen + 0.3 * chosen[0] + random.normal(size=seen.shape))
            feeds = {state: seen, action: chosen, reward: new.sum(1), following: new}
            history += [chosen[0], session.run(loss, feeds)]
            seen = new
        return history, variables_of(session)


def test_target_network() -> None:
    def on_host(function: Callable[..., Any], inputs: Sequence[tf.Tensor]) -> Any:
        results = function(*inputs)
        if tf.is_tensor(results):
            return [results]
        with tf.control_dependencies(results[1:]):
            return [tf.identity(results[0])]

    def on_ipu(function: Callable[..., Any], inputs: Sequence[tf.Tensor]) -> Any:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return ipu.ipu_compiler.compile(function, inputs)

    history, ours = learned(on_ipu)
    with tf.Graph().as_default():
        expected, theirs = learned(on_host)
    np.testing.assert_allclose(history, expected, rtol=1e-3)
    check(ours, theirs, 1e-3)
