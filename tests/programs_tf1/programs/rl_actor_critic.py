"""Actor and critic on a small grid, as of SDK 2.2: an acting and a training program share an LSTM's variables."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()


class Grid:
    """Four places in a row, with a reward at the last one."""

    def __init__(self, envs):
        self.at = np.arange(envs) % 4

    def observe(self):
        return np.eye(4, dtype=np.float32)[self.at]

    def step(self, action):
        self.at = np.clip(self.at + 2 * action - 1, 0, 3)
        reward = (self.at == 3).astype(np.float32)
        self.at = np.where(self.at == 3, 0, self.at)
        return self.observe(), reward


class Agent:
    def __init__(self, units):
        self.units = units
        self.optimizer = tf.train.RMSPropOptimizer(0.02, decay=0.9, epsilon=1e-2)

    def network(self, observations, c, h):
        with tf.variable_scope("agent", reuse=tf.AUTO_REUSE, use_resource=True):
            lstm = ipu.rnn_ops.PopnnLSTM(self.units, name="core", seed=1)
            outputs, state = lstm(observations, initial_state=tf.nn.rnn_cell.LSTMStateTuple(c, h))
            make = lambda name, n: tf.get_variable(name, [self.units, n], initializer=tf.orthogonal_initializer(seed=n))
            logits = tf.tensordot(outputs, make("pi", 2), 1)
            return logits, tf.tensordot(outputs, make("v", 1), 1)[..., 0], state

    def act(self, observation, c, h):
        logits, value, state = self.network(observation[tf.newaxis], c, h)
        return tf.nn.softmax(logits[0]), value[0], state.c, state.h

    def learn(self, observations, c, h, actions, returns):
        logits, values, _ = self.network(observations, c, h)
        advantage = tf.stop_gradient(returns - values)
        chosen = tf.reduce_sum(tf.one_hot(actions, 2) * tf.nn.log_softmax(logits), -1)
        policy, critic = -tf.reduce_mean(chosen * advantage), 0.5 * tf.reduce_mean((returns - values) ** 2)
        loss = policy + critic
        variables = [v for v in tf.trainable_variables() if v.name.startswith("agent/")]
        gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.5)
        update = self.optimizer.apply_gradients(
            zip(gradients, variables), global_step=tf.train.get_or_create_global_step()
        )
        return policy, critic, norm, update


def main(args):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    agent, n, units, t = Agent(args.units), args.envs, args.units, args.unroll
    p = {
        name: tf.placeholder(tf.float32, shape)
        for name, shape in (
            ("one", [n, 4]),
            ("many", [t, n, 4]),
            ("c", [n, units]),
            ("h", [n, units]),
            ("returns", [t, n]),
        )
    }
    actions = tf.placeholder(tf.int32, [t, n])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        acting = ipu.ipu_compiler.compile(agent.act, [p["one"], p["c"], p["h"]])
        learning = ipu.ipu_compiler.compile(agent.learn, [p["many"], p["c"], p["h"], actions, p["returns"]])
    rng, env = np.random.RandomState(args.seed), Grid(n)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        c = h = np.zeros([n, units], np.float32)
        observation = env.observe()
        for update in range(args.updates):
            c0, h0, seen, acted, rewards = c, h, [], [], []
            for _ in range(t):
                probabilities, value, c, h = sess.run(acting, {p["one"]: observation, p["c"]: c, p["h"]: h})
                action = (rng.rand(n) < probabilities[:, 1]).astype(np.int32)
                seen.append(observation)
                observation, reward = env.step(action)
                acted.append(action)
                rewards.append(reward)
            ahead = sess.run(acting, {p["one"]: observation, p["c"]: c, p["h"]: h})[1]
            returns = []
            for reward in rewards[::-1]:
                ahead = reward + args.gamma * ahead
                returns.insert(0, ahead)
            policy, critic, norm = sess.run(
                learning,
                {
                    p["many"]: np.stack(seen),
                    p["c"]: c0,
                    p["h"]: h0,
                    actions: np.stack(acted),
                    p["returns"]: np.stack(returns),
                },
            )
            print(update, "reward", np.sum(rewards), "policy", policy, "critic", critic, "norm", norm)
        print("updates", sess.run(tf.train.get_global_step()))


parser = argparse.ArgumentParser()
for name, kind, value in (
    ("envs", int, 6),
    ("units", int, 6),
    ("unroll", int, 5),
    ("updates", int, 4),
    ("gamma", float, 0.9),
    ("seed", int, 1),
):
    parser.add_argument("--" + name, type=kind, default=value)
main(parser.parse_args())
