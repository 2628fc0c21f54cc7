"""BERT's language model on one IPU, as of SDK 1.3: outlined layers, own AdamW, clipped gradients, accumulation."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.optimizers import gradient_accumulation_optimizer

flags = argparse.ArgumentParser()
flags.add_argument("--hidden", type=int, default=8)
flags.add_argument("--num-layers", type=int, default=3)
flags.add_argument("--seq", type=int, default=6)
flags.add_argument("--batches-per-step", type=int, default=4)
flags.add_argument("--total-steps", type=int, default=4)
flags.add_argument("--dtype", default="float32")
FLAGS = flags.parse_args()
VOCAB, DTYPE = 20, tf.as_dtype(FLAGS.dtype)


class AdamWeightDecay(tf.train.AdamOptimizer):
    def __init__(self, learning_rate, weight_decay_rate, **kwargs):
        self.weight_decay_rate, self.rate = weight_decay_rate, learning_rate
        super(AdamWeightDecay, self).__init__(learning_rate, **kwargs)

    def _resource_apply_dense(self, grad, var):
        with tf.control_dependencies([var.assign_sub(self.rate * self.weight_decay_rate * var)]):
            return super(AdamWeightDecay, self)._resource_apply_dense(grad, var)


def dense(x, units, name):
    w = tf.get_variable(name + "/w", [x.shape[-1].value, units], DTYPE, tf.orthogonal_initializer(seed=len(name)))
    return tf.tensordot(x, w, [[2], [0]]) + tf.get_variable(name + "/b", [units], DTYPE, tf.zeros_initializer())


def layer_norm(x, name):
    mean, var = tf.nn.moments(tf.cast(x, tf.float32), axes=[-1], keep_dims=True)
    gain = tf.get_variable(name + "/gamma", [x.shape[-1].value], DTYPE, tf.ones_initializer())
    return tf.cast((tf.cast(x, tf.float32) - mean) * tf.rsqrt(var + 1e-5), DTYPE) * gain


def layer(x, number):
    with tf.variable_scope("layer%d" % number):

        @ipu.outlined_function
        def attention_block():
            q, k, v = dense(x, FLAGS.hidden, "q"), dense(x, FLAGS.hidden, "kk"), dense(x, FLAGS.hidden, "vvv")
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / FLAGS.hidden**0.5)
            return layer_norm(x + dense(tf.matmul(scores, v), FLAGS.hidden, "outs"), "n1")

        y = attention_block()

        @ipu.outlined_function
        def feed_forward(y):
            return layer_norm(y + dense(tf.nn.relu(dense(y, 2 * FLAGS.hidden, "in")), FLAGS.hidden, "outer"), "n2")

        return feed_forward(y)


def model(ids):
    with tf.variable_scope("lm", use_resource=True):
        table = tf.get_variable("table", [VOCAB, FLAGS.hidden], DTYPE, tf.random_uniform_initializer(-1, 1, seed=5))
        x = tf.gather(table, ids[:, :-1])
        for number in range(FLAGS.num_layers):
            x = layer(x, number)
        logits = tf.tensordot(x, tf.transpose(table), 1)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=tf.cast(logits, tf.float32), labels=ids[:, 1:])
    return tf.reduce_mean(losses)


def body(total, ids):
    loss = model(ids)
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(0.02, step, FLAGS.total_steps * FLAGS.batches_per_step, 0.001)
    optimizer = AdamWeightDecay(rate, 0.01, beta2=0.98)
    optimizer = gradient_accumulation_optimizer.GradientAccumulationOptimizerV2(optimizer, num_mini_batches=2)
    grads, variables = zip(*optimizer.compute_gradients(loss))
    grads, norm = tf.clip_by_global_norm([tf.convert_to_tensor(g) for g in grads], 1.0)
    train = optimizer.apply_gradients(zip(grads, variables), global_step=step)
    with tf.control_dependencies([train]):
        return total + loss, norm


def main():
    rng = np.random.RandomState(8)
    ids = np.cumsum(rng.randint(0, 3, [16, 1, FLAGS.seq + 1]), -1).astype(np.int32) % VOCAB
    feed = np.concatenate([ids, ids[::-1]], 1)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(feed).repeat(), "in", 0)
    opts = ipu.utils.create_ipu_config(use_poplar_text_report=False)
    opts = ipu.utils.set_floating_point_behaviour_options(opts, inv=True, div0=True, oflo=True, esr=False, nanoo=True)
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(opts, 1))

    def loop():
        return ipu.loops.repeat(FLAGS.batches_per_step, lambda total, norm, x: body(total, x), [0.0, 0.0], infeed)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        result = ipu.ipu_compiler.compile(loop, [])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(infeed.initializer)
        for step in range(FLAGS.total_steps):
            total, norm = sess.run(result)
            print(step, "loss", total / FLAGS.batches_per_step, "norm", norm)
        print(sess.run(tf.train.get_global_step()))


main()
