"""CosmoFlow as of SDK 1.4: 3-D convolutions over maps of matter from TFRecords, a warm-up and a decay, two replicas."""

import argparse
import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.optimizers import CrossReplicaOptimizer

tf.disable_v2_behavior()
tf.disable_eager_execution()

SIZE, CHANNELS, TARGETS = 8, 2, 4


def write_records(path, count, seed):
    rng = np.random.RandomState(seed)
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(count):
            y = rng.uniform(-1, 1, TARGETS).astype(np.float32)
            x = rng.poisson(2 + y[0] + y[1], [SIZE, SIZE, SIZE, CHANNELS]).astype(np.int16)
            features = {
                "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[x.tobytes()])),
                "y": tf.train.Feature(float_list=tf.train.FloatList(value=y)),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def parse(record):
    spec = {"x": tf.FixedLenFeature([], tf.string), "y": tf.FixedLenFeature([TARGETS], tf.float32)}
    example = tf.parse_single_example(record, spec)
    x = tf.reshape(tf.decode_raw(example["x"], tf.int16), [SIZE, SIZE, SIZE, CHANNELS])
    return tf.log(1.0 + tf.cast(x, tf.float32)), example["y"]


def dataset(opts, pattern):
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=opts.batch_size)
    data = data.map(parse, num_parallel_calls=2).cache().repeat()
    return data.batch(opts.batch_size, drop_remainder=True).prefetch(4)


def conv_block(x, filters, name, opts):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [3, 3, 3, int(x.shape[-1]), filters], initializer=opts.initializer)
        x = tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "SAME")
        x = tf.nn.leaky_relu(tf.nn.bias_add(x, tf.get_variable("b", [filters], initializer=tf.zeros_initializer())))
        return tf.nn.max_pool3d(x, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "VALID")


def dense(x, units, name, opts, activation=None):
    with tf.variable_scope(name):
        w = tf.get_variable("w", [int(x.shape[-1]), units], initializer=opts.initializer)
        x = tf.nn.xw_plus_b(x, w, tf.get_variable("b", [units], initializer=tf.zeros_initializer()))
        return activation(x) if activation else x


def model(x, opts):
    with tf.variable_scope("cosmoflow", reuse=tf.AUTO_REUSE, use_resource=True):
        for layer in range(opts.n_conv_layers):
            x = conv_block(x, opts.conv_size * (1 << layer), "conv%d" % layer, opts)
        x = tf.reshape(x, [-1, np.prod(x.shape.as_list()[1:])])
        x = dense(x, 8, "fc1", opts, tf.nn.leaky_relu)
        return 1.2 * tf.tanh(dense(x, TARGETS, "out", opts))


def learning_rate(opts, epoch):
    if epoch < opts.warmup:
        return opts.base_rate * (epoch + 1) / opts.warmup
    return opts.base_rate * (0.25 if epoch >= 3 else 1.0)


def main():
    parser = argparse.ArgumentParser(description="CosmoFlow")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--n-conv-layers", type=int, default=2)
    parser.add_argument("--conv-size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--base-rate", type=float, default=0.05)
    opts = parser.parse_args()
    opts.initializer = tf.glorot_uniform_initializer(seed=11)
    folder = tempfile.mkdtemp()
    for number in range(2):
        write_records(os.path.join(folder, "train_%d.tfrecord" % number), 16, number)

    rate = tf.placeholder(tf.float32, [])
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(opts, os.path.join(folder, "train_*")), feed_name="in")
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="out")

    def step(rate, x, y):
        loss = tf.losses.mean_squared_error(y, model(x, opts))
        optimizer = CrossReplicaOptimizer(tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True))
        with tf.control_dependencies([optimizer.minimize(loss)]):
            mean = ipu.ops.cross_replica_ops.cross_replica_mean(loss) if opts.replicas > 1 else loss
            return rate, outfeed.enqueue(mean)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(lambda r: ipu.loops.repeat(opts.steps, step, [r], infeed), [rate])
        image = tf.placeholder(tf.float32, [2, SIZE, SIZE, SIZE, CHANNELS])
        predict = ipu.ipu_compiler.compile(lambda x: model(x, opts), [image])
    losses = outfeed.dequeue()
    ipu.utils.move_variable_initialization_to_cpu()
    config = ipu.utils.create_ipu_config(profiling=False, max_report_size=2048)
    config = ipu.utils.set_convolution_options(config, {"availableMemoryProportion": "0.3"})
    config = ipu.utils.auto_select_ipus(config, opts.replicas)
    ipu.utils.configure_ipu_system(config)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        for epoch in range(opts.epochs):
            session.run(train, {rate: learning_rate(opts, epoch)})
            values = np.reshape(session.run(losses), [opts.steps, -1]).mean(1)
            print("epoch", epoch, "rate %.4f" % learning_rate(opts, epoch), *("%.5f" % value for value in values))
        images = np.random.RandomState(3).rand(2, SIZE, SIZE, SIZE, CHANNELS)
        print(np.round(session.run(predict, {image: images})[0], 4).tolist())


if __name__ == "__main__":
    main()
