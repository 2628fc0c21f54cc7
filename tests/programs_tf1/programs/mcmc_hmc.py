"""Hamiltonian Monte Carlo of a regression's posterior, as of SDK 1.2: leapfrog loops in loops, adapted step sizes."""

import argparse
import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops, scopes, utils

parser = argparse.ArgumentParser()
parser.add_argument("--chains", type=int, default=6)
parser.add_argument("--num-samples", type=int, default=20)
parser.add_argument("--leapfrog-steps", type=int, default=5)
parser.add_argument("--bursts", type=int, default=3)
parser.add_argument("--dtype", default="float32")
opts = parser.parse_args()
assert os.environ.get("TF_POPLAR_FLAGS", "") == ""
DIMENSIONS, TARGET = 3, 0.8
rng = np.random.RandomState(11)
X = rng.randn(20, DIMENSIONS).astype(opts.dtype)
Y = (rng.rand(20) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(opts.dtype)


def log_probability(w):
    logits = tf.einsum("cd,nd->cn", w, tf.constant(X))
    likelihood = -tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.broadcast_to(Y, logits.shape), logits=logits)
    return tf.reduce_sum(likelihood, 1) - tf.reduce_sum(tf.square(w), 1) / 8


def gradient(w):
    return tf.gradients(log_probability(w), w)[0]


def leapfrog(w, momentum, size):
    def step(number, w, momentum):
        momentum += 0.5 * size * gradient(w)
        w += size * momentum
        return number + 1, w, momentum + 0.5 * size * gradient(w)

    return tf.while_loop(lambda n, *_: n < opts.leapfrog_steps, step, [0, w, momentum], back_prop=False)[1:]


def kinetic(momentum):
    return 0.5 * tf.reduce_sum(tf.square(momentum), 1)


def sample(w, log_size, accepted, momentum, uniform, outfeed):
    size = tf.exp(log_size)
    proposed, last = leapfrog(w, momentum, size)
    ratio = log_probability(proposed) - kinetic(last) - log_probability(w) + kinetic(momentum)
    is_accepted = tf.log(uniform) < ratio
    w = tf.where(tf.tile(is_accepted[:, tf.newaxis], [1, DIMENSIONS]), proposed, w)
    mean = tf.reduce_mean(tf.minimum(1.0, tf.exp(tf.minimum(ratio, 0.0))))
    accepted += tf.reduce_sum(tf.cast(is_accepted, tf.int32))
    return w, log_size + 0.05 * tf.sign(mean - TARGET), accepted, outfeed.enqueue(w)


def main():
    n = opts.num_samples
    noise = rng.randn(n * opts.bursts, opts.chains, DIMENSIONS).astype(opts.dtype)
    dataset = tf.data.Dataset.from_tensor_slices((noise, rng.rand(n * opts.bursts, opts.chains).astype(opts.dtype)))
    infeed = ipu_infeed_queue.IPUInfeedQueue(dataset.repeat(), feed_name="noise")
    outfeed = ipu_outfeed_queue.IPUOutfeedQueue(feed_name="samples")
    state = tf.get_variable("state", [opts.chains, DIMENSIONS], initializer=tf.zeros_initializer(), use_resource=True)
    log_size = tf.get_variable("log_size", [], initializer=tf.constant_initializer(-2.0), use_resource=True)

    def burst():
        w, size, accepted = loops.repeat(
            n,
            lambda *arguments: sample(*arguments, outfeed=outfeed),
            [state.read_value(), log_size.read_value(), tf.constant(0)],
            infeed,
        )
        with tf.control_dependencies([state.assign(w), log_size.assign(size)]):
            return tf.identity(accepted)

    with scopes.ipu_scope("/device:IPU:0"):
        run = ipu_compiler.compile(burst, [])
    samples = outfeed.dequeue()
    cfg = utils.create_ipu_config(profiling=False)
    utils.configure_ipu_system(utils.auto_select_ipus(cfg, num_ipus=1))
    with tf.Session(config=tf.ConfigProto(graph_options=tf.GraphOptions(), allow_soft_placement=True)) as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        for number in range(opts.bursts):
            begin = time.time()
            (accepted,) = session.run(run)
            found = session.run(samples)
            assert time.time() > begin and found.shape == (n, opts.chains, DIMENSIONS)
            print(
                "burst",
                number,
                "accepted",
                accepted,
                "size %.4f" % np.exp(session.run(log_size)),
                "mean",
                found.mean((0, 1)).round(4),
                "std",
                found.std((0, 1)).round(4),
            )


main()
