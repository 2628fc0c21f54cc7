"""Message passing over molecules in a pipeline, as of SDK 2.0: padded batches of graphs, a GRU update, a readout."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import pipelining_ops

tf.disable_v2_behavior()
ATOMS, BONDS, KINDS, TYPES = 6, 10, 4, 3


def molecules(count):
    rng = np.random.RandomState(2)
    for _ in range(count):
        size = rng.randint(3, ATOMS + 1)
        atoms = np.full([ATOMS], -1, np.int32)
        atoms[:size] = rng.randint(0, KINDS, size)
        ends = np.zeros([BONDS, 2], np.int32)
        kinds = np.full([BONDS], -1, np.int32)
        bonds = rng.randint(2, BONDS + 1)
        ends[:bonds] = rng.randint(0, size, [bonds, 2])
        kinds[:bonds] = rng.randint(0, TYPES, bonds)
        energy = np.float32([0.3 * (atoms == 1).sum() - 0.2 * (kinds == 2).sum() + 0.1 * size])
        yield atoms, ends, kinds, energy


def batches(args):
    kinds = (tf.int32, tf.int32, tf.int32, tf.float32)
    shapes = ([ATOMS], [BONDS, 2], [BONDS], [1])
    data = tf.data.Dataset.from_generator(lambda: molecules(32), kinds, shapes)
    return data.cache().repeat().batch(args.batch, drop_remainder=True)


def variable(name, shape, seed=0):
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer(seed), use_resource=True)


def gru(h, m, units):
    joined = tf.concat([h, m], -1)
    gates = tf.sigmoid(tf.tensordot(joined, variable("gates", [2 * units, 2 * units], 3), 1))
    update, reset = tf.split(gates, 2, -1)
    new = tf.tanh(tf.tensordot(tf.concat([reset * h, m], -1), variable("new", [2 * units, units], 4), 1))
    return update * h + (1 - update) * new


def pass_messages(h, ends, kinds, units, batch):
    """Sums of the messages along bonds, by one flat scatter over the atoms of all molecules."""
    places = ends + tf.reshape(tf.range(batch) * ATOMS, [batch, 1, 1])
    flat = tf.reshape(h, [batch * ATOMS, units])
    sent = tf.reshape(tf.gather(flat, places[:, :, 0]), [batch * BONDS, 1, units])
    matrices = tf.einsum(
        "bt,tij->bij", tf.reshape(tf.one_hot(kinds, TYPES), [-1, TYPES]), variable("edge", [TYPES, units, units], 5)
    )
    messages = tf.squeeze(tf.matmul(sent, matrices), 1)
    target = tf.reshape(places[:, :, 1], [batch * BONDS, 1])
    return tf.reshape(tf.scatter_nd(target, messages, [batch * ATOMS, units]), [batch, ATOMS, units])


def stages(args):
    def embed(atoms, ends, kinds, energy):
        with tf.variable_scope("embed", use_resource=True):
            h = tf.tensordot(tf.one_hot(atoms, KINDS), variable("table", [KINDS, args.units], 1), 1)
        return h, ends, kinds, tf.cast(atoms >= 0, tf.float32), energy

    def passing(number):
        def stage(h, ends, kinds, mask, energy):
            with tf.variable_scope("pass%d" % number, use_resource=True):
                messages = pass_messages(h, ends, kinds, args.units, args.batch)
                return gru(h, messages, args.units) * mask[:, :, None], ends, kinds, mask, energy

        return stage

    def readout(h, ends, kinds, mask, energy):
        with tf.variable_scope("readout", use_resource=True):
            gate = tf.sigmoid(tf.tensordot(h, variable("gate", [args.units, 1], 6), 1))
            value = tf.tensordot(h, variable("value", [args.units, 1], 7), 1)
            found = tf.reduce_sum(gate * value * mask[:, :, None], 1)
        return tf.reduce_mean(tf.abs(found - energy)) + tf.reduce_mean(tf.square(found - energy)), found

    return [embed, *map(passing, range(args.passes)), readout]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=8)
    parser.add_argument("--runs", type=int, default=4)
    args = parser.parse_args()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches(args))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def optimizer_function(loss, found):
        return pipelining_ops.OptimizerFunctionOutput(tf.train.RMSPropOptimizer(0.01, epsilon=1e-3), loss)

    def net():
        return pipelining_ops.pipeline(
            computational_stages=stages(args),
            gradient_accumulation_count=args.accumulate,
            repeat_count=2,
            inputs=[],
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
            pipeline_schedule=pipelining_ops.PipelineSchedule.Grouped,
            reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
            name="Pipeline",
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(net, inputs=[])
    outfed = outfeed.dequeue()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = True
    config.selection_order = ipu.config.SelectionOrder.ZIGZAG
    config.configure_ipu_system()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        for run in range(args.runs):
            session.run(train)
            losses, found = session.run(outfed)
            print(run, *("%.5f" % value for value in losses[:: args.accumulate // 2]), "%.4f" % found.sum())
        print(*sorted(v.name for v in tf.trainable_variables()))


if __name__ == "__main__":
    main()
