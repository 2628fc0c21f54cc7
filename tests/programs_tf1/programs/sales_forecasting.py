"""Sales of shops by embedded categories, as of SDK 1.3: own RMSPE, gradient accumulation, validation, restored best."""

import argparse
import csv
import math
import os
import tempfile
import time

import numpy as np
import tensorflow as tf
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops, scopes, utils
from tensorflow.python.ipu.optimizers import GradientAccumulationOptimizerV2

CATEGORIES = {"store": 6, "weekday": 7, "month": 12}
NUMBERS = ["promo", "distance", "days"]


def write_csv(path):
    rng = np.random.RandomState(0)
    with open(path, "w") as file:
        writer = csv.writer(file)
        writer.writerow([*CATEGORIES, *NUMBERS, "sales"])
        for _ in range(192):
            row = [rng.randint(size) for size in CATEGORIES.values()]
            numbers = [rng.randint(2), round(rng.exponential(3.0), 3), rng.randint(30)]
            sales = np.exp(5 + 0.2 * row[0] - 0.1 * row[1] + 0.3 * numbers[0] + rng.randn() * 0.05)
            writer.writerow([*row, *numbers, round(sales)])


def read_csv(path):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    categories = np.array([[int(row[name]) for name in CATEGORIES] for row in rows], np.int32)
    numbers = np.array([[float(row[name]) for name in NUMBERS] for row in rows], np.float32)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    sales = np.log(np.array([float(row["sales"]) for row in rows], np.float32))
    return categories, numbers.astype(np.float32), sales / 10


def exp_rmspe(y, prediction):
    y, prediction = tf.exp(10 * y), tf.exp(10 * prediction)
    return tf.sqrt(tf.reduce_mean(tf.square((y - prediction) / y)))


class Net:
    def __init__(self, opts):
        self.opts = opts

    def __call__(self, categories, numbers):
        columns = []
        for number, (name, size) in enumerate(CATEGORIES.items()):
            width = int(math.ceil(size**0.25)) + 1
            initializer = tf.random_uniform_initializer(-0.05, 0.05, seed=number)
            table = tf.get_variable("table_" + name, [size, width], initializer=initializer)
            columns.append(tf.nn.embedding_lookup(table, categories[:, number]))
        x = tf.concat([*columns, numbers], axis=1)
        for layer, units in enumerate(self.opts.layers):
            x = self.dense(x, units, "dense%d" % layer)
            x = tf.nn.relu(x)
        return tf.squeeze(tf.nn.sigmoid(self.dense(x, 1, "out")), axis=-1)

    def dense(self, x, units, name):
        size = x.get_shape()[1].value
        w = tf.get_variable(name + "/kernel", [size, units], initializer=tf.glorot_normal_initializer(seed=units))
        return tf.matmul(x, w) + tf.get_variable(name + "/bias", [units], initializer=tf.zeros_initializer())


def data(opts, rows, is_training):
    categories, numbers, sales = rows
    split = 128
    part = slice(0, split) if is_training else slice(split, None)
    made = tf.data.Dataset.from_tensor_slices((categories[part], numbers[part], sales[part])).repeat()
    return made.batch(opts.batch_size, drop_remainder=True)


def graph(opts, rows, is_training):
    infeed = ipu_infeed_queue.IPUInfeedQueue(data(opts, rows, is_training), feed_name="i%d" % is_training)
    outfeed = ipu_outfeed_queue.IPUOutfeedQueue(feed_name="o%d" % is_training)
    rate = tf.placeholder(tf.float32, shape=[])

    def body(rate, categories, numbers, sales):
        with tf.variable_scope("net", use_resource=True, reuse=tf.AUTO_REUSE):
            prediction = Net(opts)(categories, numbers)
        loss = tf.losses.mean_squared_error(labels=sales, predictions=prediction)
        enqueue = outfeed.enqueue((loss, exp_rmspe(sales, prediction)))
        if not is_training:
            return rate, enqueue
        optimizer = tf.train.AdamOptimizer(learning_rate=rate)
        optimizer = GradientAccumulationOptimizerV2(optimizer, num_mini_batches=opts.accumulate)
        return rate, optimizer.minimize(loss), enqueue

    with scopes.ipu_scope("/device:IPU:0"):
        run = ipu_compiler.compile(lambda r: loops.repeat(opts.iterations, body, [r], infeed), inputs=[rate])
    return rate, run, infeed, outfeed.dequeue()


def main(opts):
    path = os.path.join(tempfile.mkdtemp(), "train.csv")
    write_csv(path)
    rows = read_csv(path)
    train_rate, train, train_infeed, trained = graph(opts, rows, True)
    valid_rate, valid, valid_infeed, validated = graph(opts, rows, False)
    saver = tf.train.Saver(tf.global_variables(), max_to_keep=1)
    utils.move_variable_initialization_to_cpu()
    initializer = tf.global_variables_initializer()
    options = utils.create_ipu_config(profiling=opts.profile, use_poplar_text_report=True)
    options = utils.auto_select_ipus(options, [1])
    options = utils.set_recomputation_options(options, allow_recompute=False)
    utils.configure_ipu_system(options)
    session = tf.Session(config=tf.ConfigProto())
    session.run(initializer)
    session.run([train_infeed.initializer, valid_infeed.initializer])
    best, rate, start = np.inf, opts.base_rate, time.time()
    for epoch in range(opts.epochs):
        session.run(train, {train_rate: rate * min(1.0, (epoch + 1) / opts.warmup)})
        loss, error = (np.mean(each) for each in session.run(trained))
        session.run(valid, {valid_rate: 0.0})
        valid_loss, valid_error = (np.mean(each) for each in session.run(validated))
        print("epoch %d: loss %.6f rmspe %.4f, valid %.6f %.4f" % (epoch, loss, error, valid_loss, valid_error))
        if valid_error < best:
            best, saved = valid_error, saver.save(session, os.path.join(os.path.dirname(path), "model"), epoch)
        else:
            rate *= 0.5
    assert time.time() > start
    saver.restore(session, saved)
    session.run(valid, {valid_rate: 0.0})
    print("restored %.4f of %.4f" % (np.mean(session.run(validated)[1]), best))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--base-rate", type=float, default=0.01)
    parser.add_argument("--layers", type=int, nargs="+", default=[16, 8])
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    main(parser.parse_args())
