"""A recommender's deep autoencoder, as of SDK 1.2: two shards, SELU, masked errors, tied decoders, re-fed outputs."""

import argparse
import collections
import os
import sys

import numpy as np
import tensorflow as tf
import tensorflow.python.ipu as ipu
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, loops, sharded_optimizer
from tensorflow.python.ipu.scopes import ipu_scope, ipu_shard

sys.path.append(os.path.dirname(os.path.realpath(__file__)))
GraphOps = collections.namedtuple("GraphOps", ["session", "init", "train", "iterator", "saver", "rmse"])


class Options(argparse.ArgumentParser):
    def __init__(self):
        super(Options, self).__init__(conflict_handler="resolve")
        self.add_argument("--size", nargs="+", type=int, default=[8, 4, 8])
        self.add_argument("--shards", type=int, choices=[1, 2], default=2)
        self.add_argument("--batch-size", type=int, default=4)
        self.add_argument("--base-learning-rate", type=int, default=-4)
        self.add_argument("--no-tied", dest="tied", action="store_false")
        self.add_argument("--weight-decay", type=float, default=1e-3)
        self.add_argument("--precision", choices=["16", "32"], default="32")


def selu(x):
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return scale * tf.where(x >= 0.0, x, alpha * tf.nn.elu(x))


class AutoEncoder:
    def __init__(self, opts, width):
        self.opts, self.sizes = opts, [width] + opts.size + [width]
        self.dtype = tf.float16 if opts.precision == "16" else tf.float32

    def __call__(self, x, training=True):
        middle, encoders = len(self.sizes) // 2, []
        for number, (rows, columns) in enumerate(zip(self.sizes, self.sizes[1:])):
            with ipu_shard(0 if number < middle or self.opts.shards == 1 else 1):
                with tf.variable_scope("layer%d" % number, reuse=not training, use_resource=True):
                    if self.opts.tied and number >= middle:
                        w = tf.transpose(encoders[2 * middle - 1 - number])
                    else:
                        w = tf.get_variable("w", [rows, columns], self.dtype, tf.initializers.he_normal(seed=number))
                    encoders.append(w)
                    b = tf.get_variable("b", [columns], self.dtype, tf.zeros_initializer())
                    x = tf.matmul(x, w) + b
                    x = selu(x) if number < len(self.sizes) - 2 else x
        return x


def masked_mse(predicted, ratings):
    mask = tf.cast(tf.not_equal(ratings, 0), predicted.dtype)
    return tf.reduce_sum(tf.square((predicted - ratings) * mask)) / tf.maximum(1.0, tf.reduce_sum(mask))


def training_step(opts, model, loss, error, ratings):
    predicted = model(ratings)
    error = masked_mse(predicted, ratings)
    dense = tf.stop_gradient(predicted)
    loss = error + 0.5 * masked_mse(model(dense, training=False), dense)
    weights = [v for v in tf.trainable_variables() if v.name.endswith("/w:0")]
    loss += opts.weight_decay * sum(tf.nn.l2_loss(w) for w in weights)
    optimizer = sharded_optimizer.ShardedOptimizer(tf.train.GradientDescentOptimizer(2.0**opts.base_learning_rate))
    with tf.control_dependencies([optimizer.minimize(loss)]):
        return tf.identity(loss), tf.identity(error)


def ratings(users, items):
    rng = np.random.RandomState(6)
    full = rng.randn(users, 2) @ rng.randn(2, items) + 3
    return (np.clip(full, 1, 5) * (rng.rand(users, items) < 0.6)).astype(np.float32)


def train_graph(opts, data):
    graph = tf.Graph()
    with graph.as_default():
        dataset = tf.data.Dataset.from_tensor_slices(data).repeat().batch(opts.batch_size, drop_remainder=True)
        infeed = ipu_infeed_queue.IPUInfeedQueue(dataset, feed_name="training_infeed")
        model, n = AutoEncoder(opts, data.shape[1]), len(data) // opts.batch_size

        def body(loss, error, x):
            return training_step(opts, model, loss, error, x)

        with ipu_scope("/device:IPU:0"):
            train = ipu_compiler.compile(lambda: loops.repeat(n, body, [0.0, 0.0], infeed))
        x = tf.placeholder(tf.float32, data.shape)
        rmse = tf.sqrt(masked_mse(model(x, training=False), x))
        init = tf.global_variables_initializer()
        return GraphOps(tf.Session(graph=graph), init, train, infeed.initializer, tf.train.Saver(), (rmse, x))


def main():
    opts = Options().parse_args()
    config = ipu.utils.create_ipu_config()
    config = ipu.utils.auto_select_ipus(config, opts.shards)
    ipu.utils.configure_ipu_system(config)
    data = ratings(16, 10)
    train = train_graph(opts, data)
    train.session.run(train.init)
    train.session.run(train.iterator)
    rmse, x = train.rmse
    for epoch in range(5):
        loss, error = train.session.run(train.train)
        print("epoch %d loss %.5f mse %.5f" % (epoch, loss, error), train.session.run(rmse, {x: data}))
    train.saver.save(train.session, "./autoencoder", global_step=5)
    train.session.run(train.init)
    print("untrained", train.session.run(rmse, {x: data}))
    train.saver.restore(train.session, "./autoencoder-5")
    print("restored", train.session.run(rmse, {x: data}))


if __name__ == "__main__":
    main()
