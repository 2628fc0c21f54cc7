"""Language model with PopnnLSTM, as of SDK 1.4: fed learning rate, clipped gradients, summaries and a Saver."""

import os, argparse, tempfile
import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ipu import (
    utils,
    ipu_compiler,
    scopes,
    loops,
    ipu_infeed_queue,
    ipu_outfeed_queue,
    rnn_ops,
    embedding_ops,
    normalization_ops,
)
from tensorflow.keras.preprocessing.sequence import pad_sequences

tf.disable_eager_execution()
tf.disable_v2_behavior()

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=20)
p.add_argument("--precision", choices=["16", "32"], default="32")
a = p.parse_args()
dt = tf.float16 if a.precision == "16" else tf.float32
V, S, B, H = 23, 12, 4, 16
r = np.random.RandomState(0)
docs = pad_sequences([r.randint(1, V, size=r.randint(4, S + 1)) for _ in range(64)], maxlen=S, padding="post")


class Model(object):
    def __init__(self, name="lm"):
        self.name = name

    def __call__(self, tokens, lr):
        with tf.variable_scope(self.name, reuse=tf.AUTO_REUSE, use_resource=True):
            table = tf.get_variable(
                "embedding", [V, H], dt, initializer=tf.random_normal_initializer(stddev=0.1, seed=5)
            )
            x = embedding_ops.embedding_lookup(table, tokens, name="emb")
            x = tf.transpose(x, [1, 0, 2])
            lstm = rnn_ops.PopnnLSTM(H, dtype=dt, weights_initializer=tf.glorot_uniform_initializer(seed=6))
            init = tf.nn.rnn_cell.LSTMStateTuple(tf.zeros([B, H], dt), tf.zeros([B, H], dt))
            y, state = lstm(x, initial_state=init, training=True)
            y = normalization_ops.layer_norm(y, epsilon=1e-3, training=True)
            logits = tf.tensordot(y, table, [[2], [1]])
            labels = tf.transpose(tokens)[1:]
            mask = tf.cast(tf.not_equal(labels, 0), tf.float32)
            ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits[:-1], tf.float32))
            loss = tf.reduce_sum(ce * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)
        tvars = tf.trainable_variables()
        grads, norm = tf.clip_by_global_norm(tf.gradients(loss, tvars), 1.0)
        opt = tf.train.AdamOptimizer(lr, epsilon=1e-4)
        train = opt.apply_gradients(zip(grads, tvars))
        return loss, norm, train


ds = (
    tf.data.Dataset.from_tensor_slices(docs.astype(np.int32))
    .shuffle(64, seed=1, reshuffle_each_iteration=False)
    .repeat()
    .batch(B, drop_remainder=True)
)
infeed = ipu_infeed_queue.IPUInfeedQueue(ds, "train")
outfeed = ipu_outfeed_queue.IPUOutfeedQueue("train_out", outfeed_mode=ipu_outfeed_queue.IPUOutfeedMode.ALL)
lr_ph = tf.placeholder(tf.float32, [])
model = Model()


def step(lr, tokens):
    loss, norm, train = model(tokens, lr)
    with tf.control_dependencies([train]):
        return lr, outfeed.enqueue((loss, norm))


def comp(lr):
    return loops.repeat(a.steps, step, [lr], infeed)


with scopes.ipu_scope("/device:IPU:0"):
    train_op = ipu_compiler.compile(comp, [lr_ph])
opts = utils.create_ipu_config(profiling=False, profile_execution=False)
opts = utils.auto_select_ipus(opts, [1])
opts = utils.set_floating_point_behaviour_options(opts, inv=True, div0=True, oflo=True, esr=False, nanoo=True)
utils.configure_ipu_system(opts)
utils.move_variable_initialization_to_cpu()
saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=1)
deq = outfeed.dequeue()
d = tempfile.mkdtemp()
writer = tf.summary.FileWriter(d, tf.get_default_graph())
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(infeed.initializer)
    for epoch in range(4):
        lr = 0.02 * 0.7**epoch
        sess.run(train_op, feed_dict={lr_ph: lr})
        losses, norms = sess.run(deq)
        summary = tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=float(np.mean(losses)))])
        writer.add_summary(summary, epoch)
        path = saver.save(sess, os.path.join(d, "ckpt"), global_step=epoch)
        print("epoch", epoch, "loss %.4f norm %.4f" % (np.mean(losses), np.mean(norms)))
    writer.close()
    saver.restore(sess, tf.train.latest_checkpoint(d))
    table = sess.run(tf.trainable_variables()[0])
    print("table %.4f" % np.abs(table).mean())
