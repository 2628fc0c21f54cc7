"""A graph convolutional network that classifies nodes, as of SDK 1.4: sums over edges, masks, decayed rate, one loop."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

flags = tf.app.flags if hasattr(tf, "app") else None
NODES, CLASSES, FEATURES = 24, 3, 5


def parse():
    parser = argparse.ArgumentParser(description="GCN")
    parser.add_argument("--hidden", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--epochs-per-run", type=int, default=6)
    parser.add_argument("--weight-decay", type=float, default=5e-3)
    parser.add_argument("--attention", action="store_true")
    return parser.parse_args()


def made_graph():
    rng = np.random.RandomState(1)
    labels = np.arange(NODES) % CLASSES
    edges = [(k, k) for k in range(NODES)]
    for a in range(NODES):
        for b in range(a):
            if rng.rand() < (0.4 if labels[a] == labels[b] else 0.05):
                edges += [(a, b), (b, a)]
    source, target = np.array(edges, np.int32).T
    degree = np.bincount(target, minlength=NODES)
    weight = 1 / np.sqrt(degree[source] * degree[target])
    x = rng.randn(NODES, FEATURES) * 0.7 + np.eye(CLASSES, FEATURES)[labels]
    x /= np.abs(x).sum(1, keepdims=True)
    mask = np.arange(NODES) < NODES // 2
    return source, target, weight.astype(np.float32), x.astype(np.float32), np.eye(CLASSES)[labels], mask


def weights(name, shape, seed):
    return tf.get_variable(name, shape, initializer=tf.contrib.layers.xavier_initializer(seed=seed), use_resource=True)


def convolve(x, units, source, target, weight, name, args):
    with tf.variable_scope(name):
        x = tf.matmul(x, weights("w", [x.shape[1].value, units], units))
        messages = tf.gather(x, source)
        if args.attention:
            a = weights("a", [2 * units, 1], 3)
            score = tf.nn.leaky_relu(tf.matmul(tf.concat([messages, tf.gather(x, target)], 1), a))
            score = tf.exp(score - tf.reduce_max(score))
            weight = score / tf.gather(tf.unsorted_segment_sum(score, target, NODES), target)
            weight = tf.squeeze(weight, [1])
        x = tf.unsorted_segment_sum(messages * tf.expand_dims(weight, 1), target, NODES)
        return x + tf.get_variable("b", [units], initializer=tf.zeros_initializer(), use_resource=True)


def masked(values, mask):
    mask = tf.cast(mask, tf.float32)
    return tf.reduce_mean(values * mask / tf.reduce_mean(mask))


def main(args):
    source, target, weight, x, labels, mask = made_graph()
    given = [tf.placeholder(tf.float32, x.shape), tf.placeholder(tf.float32, labels.shape)]
    where = tf.placeholder(tf.bool, mask.shape)

    def network(features):
        with tf.variable_scope("gcn", reuse=tf.AUTO_REUSE):
            h = tf.nn.relu(convolve(features, args.hidden, source, target, weight, "first", args))
            return convolve(h, CLASSES, source, target, weight, "second", args)

    def loop(features, labels, where):
        def step(number, _):
            logits = network(features)
            loss = masked(tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits), where)
            kernels = [v for v in tf.trainable_variables() if "first/w" in v.name]
            loss += args.weight_decay * tf.add_n([tf.nn.l2_loss(v) for v in kernels])
            rate = tf.train.inverse_time_decay(0.05, tf.train.get_or_create_global_step(), 10, 0.5)
            train = tf.train.AdamOptimizer(rate).minimize(loss, global_step=tf.train.get_or_create_global_step())
            with tf.control_dependencies([train]):
                return number + 1, tf.identity(loss)

        return ipu.loops.repeat(args.epochs_per_run, step, [0, 0.0])

    def evaluate(features, labels, where):
        right = tf.equal(tf.argmax(network(features), 1), tf.argmax(labels, 1))
        return masked(tf.cast(right, tf.float32), tf.logical_not(where)), tf.nn.softmax(network(features))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(loop, [*given, where])
        test = ipu.ipu_compiler.compile(evaluate, [*given, where])
    config = ipu.utils.create_ipu_config()
    config = ipu.utils.set_ipu_model_options(config, compile_ipu_code=False)
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(config, 1))
    feed = {given[0]: x, given[1]: labels, where: mask}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(args.epochs // args.epochs_per_run):
            number, loss = session.run(train, feed)
            accuracy, probabilities = session.run(test, feed)
            print(number, session.run(tf.train.get_global_step()), "%.5f %.4f" % (loss, accuracy))
        print(np.round(probabilities[:3], 4).tolist())


if __name__ == "__main__":
    main(parse())
