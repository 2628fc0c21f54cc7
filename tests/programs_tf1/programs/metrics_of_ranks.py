"""Streaming metrics of a ranking model, precision and recall among the first k, in a loop over batches."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_compiler, loops, scopes

tf.disable_v2_behavior()
BATCH, CLASSES = 6, 5
rng = np.random.RandomState(0)
scores, labels = rng.randn(48, CLASSES).astype(np.float32), rng.randint(-1, CLASSES, (48, 2)).astype(np.int32)
labels[:, 0] %= CLASSES  # at least one label; -1 stands for none
dataset = tf.data.Dataset.from_tensor_slices((scores, labels)).batch(BATCH, drop_remainder=True).repeat()
infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def step(scores, labels):
    wide, metrics = tf.cast(labels, tf.int64), tf.metrics
    top = tf.cast(tf.nn.top_k(scores, 3).indices, tf.int64)
    top = tf.concat([top[:, :2], top[:, :1]], axis=1)  # a class twice
    found = [
        metrics.precision_at_k(wide, scores, 2),
        metrics.recall_at_k(wide, scores, 3, weights=tf.cast(labels[:, 0] > 0, tf.float32)),
        metrics.precision_at_k(wide, scores, 2, class_id=1),
        metrics.recall_at_k(wide, scores, 3, class_id=2),
        metrics.average_precision_at_k(wide, scores, 3),
        metrics.precision_at_top_k(wide, top),
        metrics.recall_at_top_k(wide, top),
    ]
    return outfeed.enqueue(tf.stack([tf.cast(update, tf.float32) for _, update in found]))


with scopes.ipu_scope("/device:IPU:0"):
    run = ipu_compiler.compile(lambda: loops.repeat(4, step, infeed_queue=infeed))
dequeued = outfeed.dequeue()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with tf.Session() as session:
    session.run([tf.local_variables_initializer(), infeed.initializer])
    for _ in range(3):
        session.run(run)
        for row in session.run(dequeued):
            print(*(f"{value:.5f}" for value in row))
