"""ResNet on replicas, as of SDK 1.2: group norms, queues, gradient accumulation, a learning rate that is fed."""

import argparse
import time
from functools import partial

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops, normalization_ops
from tensorflow.python.ipu import gradient_accumulation_optimizer as gao
from tensorflow.python.ipu.scopes import ipu_scope
from tensorflow.python.ipu.utils import reset_ipu_seed

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--replicas", type=int, default=2)
parser.add_argument("--gradients-to-accumulate", type=int, default=2)
parser.add_argument("--batches-per-step", type=int, default=4)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--base-learning-rate", type=float, default=-6)
parser.add_argument("--learning-rate-schedule", type=str, default="0.5,0.75")
parser.add_argument("--weight-decay", type=float, default=1e-3)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--seed", type=int, default=3)
opts = parser.parse_args()
opts.learning_rate_schedule = [float(x) for x in opts.learning_rate_schedule.split(",")]


def conv(x, filters, ksize, stride, name):
    with tf.variable_scope(name):
        shape = [ksize, ksize, x.shape[-1], filters]
        init = tf.contrib.layers.xavier_initializer(uniform=False, seed=opts.seed)
        w = tf.get_variable("conv2d/kernel", shape=shape, dtype=x.dtype, initializer=init, trainable=True)
        return tf.nn.conv2d(x, w, [1, stride, stride, 1], padding="SAME")


def norm(x, is_training, scope):
    return normalization_ops.group_norm(
        x, groups=2, center=True, scale=True, training=is_training, scope=scope, trainable=is_training, channels_axis=-1
    )


def block(x, filters, stride, is_training, name):
    with tf.variable_scope(name):
        shortcut = x
        if stride != 1 or int(x.shape[-1]) != filters:
            pad = filters - int(x.shape[-1])
            shortcut = tf.pad(x[:, ::stride, ::stride, :], [[0, 0], [0, 0], [0, 0], [0, pad]])
        x = tf.nn.relu(norm(conv(x, filters, 3, stride, "1"), is_training, "1/bn"))
        x = norm(conv(x, filters, 3, 1, "2"), is_training, "2/bn")
        return tf.nn.relu(x + shortcut)


def resnet(x, is_training=True):
    with tf.variable_scope("all", use_resource=True):
        x = tf.nn.relu(norm(conv(x, 4, 3, 1, "conv"), is_training, "conv/bn"))
        for i, filters in enumerate([4, 8]):
            x = block(x, filters, 1 if i == 0 else 2, is_training, "b%d" % i)
        x = tf.reduce_mean(x, reduction_indices=[1, 2])
        with tf.variable_scope("fc", use_resource=True):
            w = tf.get_variable("dense/kernel", [int(x.shape[1]), 10], initializer=tf.glorot_uniform_initializer(1))
            b = tf.get_variable("dense/bias", [10], initializer=tf.constant_initializer(0.0))
            return tf.nn.xw_plus_b(x, w, b)


def body(lr, image, label, outfeed):
    logits = resnet(image)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), label), tf.float32))
    decayed = [v for v in tf.trainable_variables() if "bn" not in v.name and "bias" not in v.name]
    l2 = tf.add_n([tf.nn.l2_loss(tf.cast(v, tf.float32)) for v in decayed])
    optimizer = tf.train.MomentumOptimizer(lr, opts.momentum)
    optimizer = gao.CrossReplicaGradientAccumulationOptimizerV2(optimizer, opts.gradients_to_accumulate)
    train_op = optimizer.minimize((loss + opts.weight_decay * l2) / opts.gradients_to_accumulate)
    enqueue = outfeed.enqueue({"loss": loss, "accuracy": accuracy, "lr": lr})
    return [lr, train_op, enqueue]


def data():
    rng = np.random.RandomState(opts.seed)
    images = rng.randint(0, 255, size=[64, 8, 8, 3]).astype(np.uint8)
    labels = rng.randint(0, 10, size=[64]).astype(np.int32)

    def preprocess(image, label):
        return tf.image.per_image_standardization(tf.cast(image, tf.float32)), label

    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).cache()
    dataset = dataset.apply(tf.data.experimental.map_and_batch(preprocess, opts.batch_size, drop_remainder=True))
    return dataset.repeat().prefetch(4)


with tf.Graph().as_default():
    placeholder = tf.placeholder(tf.float32, shape=[])
    infeed = ipu_infeed_queue.IPUInfeedQueue(data(), "training_feed", 0, replication_factor=opts.replicas)
    outfeed = ipu_outfeed_queue.IPUOutfeedQueue("outfeed", replication_factor=opts.replicas)

    def comp_fn(lr):
        return loops.repeat(opts.batches_per_step, partial(body, outfeed=outfeed), [lr], infeed)

    with ipu_scope("/device:IPU:0"):
        train = ipu_compiler.compile(comp_fn, inputs=[placeholder])
    outfed = outfeed.dequeue()
    init = tf.global_variables_initializer()
    ipu.utils.move_variable_initialization_to_cpu()
    saver = tf.train.Saver(tf.trainable_variables(), max_to_keep=99)
    cfg = ipu.utils.create_ipu_config(profiling=False, max_cross_replica_sum_buffer_size=10485760)
    cfg = ipu.utils.set_convolution_options(cfg, {"availableMemoryProportion": "0.3"})
    cfg = ipu.utils.auto_select_ipus(cfg, opts.replicas)
    ipu.utils.configure_ipu_system(cfg)
    reset_ipu_seed(opts.seed)
    sess = tf.Session(config=tf.ConfigProto())
    sess.run(init)
    sess.run(infeed.initializer)
    rate = 2**opts.base_learning_rate * opts.replicas * opts.batch_size
    for step in range(opts.steps):
        start = time.time()
        decay = sum(step / opts.steps >= at for at in opts.learning_rate_schedule)
        sess.run(train, {placeholder: rate / 2.0**decay})
        found = sess.run(outfed)
        assert time.time() > start
        print(
            "step: {:3d}, loss: {:.6f}, accuracy: {:.4f}, lr: {:.5f}".format(
                step, np.mean(found["loss"]), np.mean(found["accuracy"]), np.mean(found["lr"])
            )
        )
    for v in tf.trainable_variables():
        print(v.name, np.abs(sess.run(v)).mean())
