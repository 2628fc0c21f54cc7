"""A small CNN in two shards with batch norms and tf.layers, as of SDK 1.4: training, a checkpoint, validation."""

import argparse
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.sharded_optimizer import ShardedOptimizer

tf.disable_v2_behavior()


def parse():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--lr-warmup", action="store_true")
    parser.add_argument("--checkpoint-path", default=tempfile.mkdtemp())
    args, unknown = parser.parse_known_args()
    assert not unknown, unknown
    return vars(args)


class Model:
    def __init__(self, opts):
        self.opts = opts

    def __call__(self, x, training):
        with tf.variable_scope("net", reuse=tf.AUTO_REUSE, use_resource=True):
            with ipu.scopes.ipu_shard(0):
                x = tf.layers.conv2d(
                    x,
                    6,
                    3,
                    padding="same",
                    use_bias=False,
                    name="c1",
                    kernel_initializer=tf.variance_scaling_initializer(seed=1),
                )
                x = tf.layers.batch_normalization(x, training=training, momentum=0.8, name="n1")
                x = tf.layers.max_pooling2d(tf.nn.relu(x), 2, 2)
            with ipu.scopes.ipu_shard(1):
                x = tf.layers.separable_conv2d(
                    x,
                    8,
                    3,
                    padding="same",
                    name="c2",
                    depthwise_initializer=tf.glorot_uniform_initializer(2),
                    pointwise_initializer=tf.glorot_uniform_initializer(3),
                )
                x = tf.layers.flatten(tf.nn.leaky_relu(x))
                return tf.layers.dense(x, 5, name="fc", kernel_initializer=tf.glorot_uniform_initializer(4))


def dataset(opts, validation):
    rng = np.random.RandomState(1 + validation)
    x = rng.normal(size=[24, 6, 6, 2]).astype(np.float32)
    y = (np.abs(x).sum((1, 2, 3)) * 3 % 5).astype(np.int32)
    one = tf.data.Dataset.from_tensor_slices({"x": x, "y": tf.one_hot(y, 5)})
    return one.batch(opts["batch_size"], drop_remainder=True).repeat()


def train_step(x, y, opts, model, outfeed):
    loss = tf.losses.softmax_cross_entropy(y, model(x, True), label_smoothing=0.1)
    step = tf.train.get_or_create_global_step()
    lr = tf.train.piecewise_constant(step, [4, 8], [0.05, 0.02, 0.01])
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        optimizer = ShardedOptimizer(tf.train.RMSPropOptimizer(lr, momentum=0.5, epsilon=1e-3))
        train = optimizer.minimize(loss, global_step=step)
    return outfeed.enqueue((loss, lr)), train


def valid_step(x, y, opts, model, outfeed):
    logits = model(x, False)
    right = tf.equal(tf.argmax(logits, 1), tf.argmax(y, 1))
    return outfeed.enqueue((tf.losses.softmax_cross_entropy(y, logits), tf.reduce_mean(tf.cast(right, tf.float32))))


def main():
    opts = parse()
    model, steps = Model(opts), 24 // opts["batch_size"]
    config = ipu.utils.create_ipu_config()
    config = ipu.utils.auto_select_ipus(config, opts["shards"])
    ipu.utils.configure_ipu_system(config)
    runs = {}
    for name, function in (("train", train_step), ("valid", valid_step)):
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(opts, name == "valid"), feed_name=name + "_in")
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name=name + "_out")

        def body(x, y, function=function, outfeed=outfeed):
            return function(x, y, opts, model, outfeed)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            op = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, body, [], infeed), [])
        runs[name] = op, outfeed.dequeue(), infeed.initializer
    saver = tf.train.Saver()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run([each for _, _, each in runs.values()])
        for epoch in range(opts["epochs"]):
            sess.run(runs["train"][0])
            losses, rates = sess.run(runs["train"][1])
            print("epoch", epoch, "loss", losses.mean(), "rate", rates[-1])
        path = saver.save(sess, os.path.join(opts["checkpoint_path"], "ckpt"), global_step=12)
    with tf.Session() as sess:
        saver.restore(sess, path)
        sess.run(runs["valid"][2])
        sess.run(runs["valid"][0])
        losses, right = sess.run(runs["valid"][1])
        print("validation", losses.mean(), right.mean(), "step", sess.run(tf.train.get_global_step()))
    for name, shape in sorted(tf.train.list_variables(path)):
        print(name, *shape)


if __name__ == "__main__":
    main()
