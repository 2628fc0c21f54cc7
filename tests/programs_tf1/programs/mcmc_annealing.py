"""Simulated annealing of spins and Gibbs sweeps, as of SDK 2.3: conditions, gathers, while loops to convergence."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

tf.disable_v2_behavior()
CHAINS, SPINS = 4, 10


def couplings(seed):
    random = np.random.RandomState(seed)
    j = np.triu(random.randn(SPINS, SPINS), 1).astype(np.float32)
    return j + j.T


def energy(spins, j):
    return -0.5 * tf.reduce_sum(spins * tf.matmul(spins, j), axis=1)


def sweep(spins, best, temperature, j, order, uniform):
    """A Metropolis update of every spin, in a given order."""

    def flip(number, spins):
        at = order[number]
        field = tf.gather(tf.matmul(spins, j), at, axis=1)
        chosen = tf.gather(spins, at, axis=1)
        cost = 2.0 * chosen * field
        is_flipped = tf.logical_or(cost < 0.0, uniform[:, number] < tf.exp(-cost / temperature))
        sign = tf.where(is_flipped, -tf.ones_like(cost), tf.ones_like(cost))
        mask = tf.one_hot(at, SPINS)
        return number + 1, spins * (1.0 + mask * (sign[:, None] - 1.0))

    _, spins = tf.while_loop(lambda number, _: number < SPINS, flip, [0, spins], back_prop=False)
    lowest = tf.reduce_min(energy(spins, j))
    best = tf.cond(lowest < best, lambda: lowest, lambda: best)
    return spins, best, temperature * 0.95


def anneal(spins, temperature, j, infeed, outfeed):
    def condition(spins, best, temperature, sweeps):
        return tf.logical_and(temperature > 0.2, sweeps < 40)

    def body(spins, best, temperature, sweeps, order, uniform):
        spins, best, temperature = sweep(spins, best, temperature, j, order, uniform)
        return spins, best, temperature, sweeps + 1, outfeed.enqueue((best, tf.reduce_mean(energy(spins, j))))

    return ipu.loops.while_loop(condition, body, [spins, tf.constant(1e9), temperature, 0], infeed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=3)
    parser.add_argument("--start", type=float, default=3.0)
    args = parser.parse_args()
    random = np.random.RandomState(0)
    orders = np.stack([random.permutation(SPINS) for _ in range(50)]).astype(np.int32)
    data = tf.data.Dataset.zip(
        (
            tf.data.Dataset.from_tensor_slices(orders),
            tf.data.Dataset.from_tensor_slices(random.rand(50, CHAINS, SPINS).astype(np.float32)),
        )
    )
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    j, temperature = tf.placeholder(tf.float32, [SPINS, SPINS]), tf.placeholder(tf.float32, [])
    spins = tf.placeholder(tf.float32, [CHAINS, SPINS])
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        run = ipu.ipu_compiler.compile(lambda *inputs: anneal(*inputs, infeed, outfeed), [spins, temperature, j])
    trace = outfeed.dequeue()
    with tf.Session() as session:
        session.run(infeed.initializer)
        for problem in range(args.problems):
            first = np.where(random.rand(CHAINS, SPINS) < 0.5, -1.0, 1.0)
            last, best, cold, sweeps = session.run(
                run, {spins: first, temperature: args.start / (problem + 1), j: couplings(problem)}
            )
            bests, means = session.run(trace)
            assert set(np.unique(last)) <= {-1.0, 1.0} and len(bests) == sweeps and bests[-1] == best
            print("problem", problem, "best", best, "temperature", cold, "sweeps", sweeps, "means", means[::8].round(3))


main()
