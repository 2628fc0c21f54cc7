"""Deep interest evolution, as of SDK 1.4: recurrent interests of tables on the device, an auxiliary loss, two programs."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import rnn_ops

tf.disable_eager_execution()
tf.disable_v2_behavior()
parser = argparse.ArgumentParser()
parser.add_argument("--hidden-size", type=int, default=6)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--use-negsampling", type=lambda text: text.lower() in ("1", "true"), default=True)
parser.add_argument("--gradient-clip", type=float, default=0.5)
args = parser.parse_args()
ITEMS, STEPS, BATCH, BATCHES = 18, 4, 6, 6


def table():
    with tf.variable_scope("tables", reuse=tf.AUTO_REUSE, use_resource=True):
        return tf.get_variable("mid", [ITEMS, 4], initializer=tf.random_normal_initializer(stddev=0.3, seed=4))


def rows(ids):
    return ipu.embedding_ops.embedding_lookup(table(), ids, serialization_factor=2)


def layer(x, units, name, activation=None):
    return tf.layers.dense(
        x,
        units,
        activation,
        name=name,
        reuse=tf.AUTO_REUSE,
        kernel_initializer=tf.glorot_normal_initializer(seed=len(name)),
    )


def auxiliary(states, click, no_click, mask):
    def net(x):
        return tf.nn.sigmoid(layer(layer(x, 8, "aux1", tf.nn.sigmoid), 1, "aux2_"))[:, :, 0]

    a, b = (net(tf.concat([states, each], -1)) for each in (click, no_click))
    return tf.reduce_mean(-tf.log(a + 1e-6) * mask - tf.log(1.0 - b + 1e-6) * mask)


def model(item, history, negative, mask, label, training):
    with tf.variable_scope("dien", reuse=tf.AUTO_REUSE, use_resource=True):
        query, facts = rows(item), rows(history)
        time_major = tf.transpose(facts, [1, 0, 2])
        gru = rnn_ops.PopnnGRU(
            args.hidden_size,
            tf.float32,
            name="gru1",
            weights_initializer=tf.orthogonal_initializer(seed=1),
            bias_initializer=tf.constant_initializer(0.1),
        )
        states, _ = gru(time_major, tf.zeros([BATCH, args.hidden_size]), training=training)
        states = tf.transpose(states, [1, 0, 2])
        loss = tf.constant(0.0)
        if args.use_negsampling:
            loss = auxiliary(states[:, :-1], facts[:, 1:], rows(negative)[:, 1:], mask[:, 1:])
        weights = tf.matmul(layer(states, 4, "attention"), tf.expand_dims(query, -1))
        weights = tf.nn.softmax(tf.squeeze(weights, -1) - 1e9 * (1.0 - mask))
        evolved, _ = rnn_ops.PopnnLSTM(args.hidden_size, tf.float32, name="lstm2", seed=3)(
            tf.transpose(states * tf.expand_dims(weights, -1), [1, 0, 2])
        )
        x = tf.concat([query, tf.reduce_sum(facts, 1), evolved[-1]], 1)
        logits = layer(layer(x, 8, "f1_____", tf.nn.relu), 2, "f2______")
        cross = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        return cross + 0.5 * loss, loss, tf.nn.softmax(logits)[:, 1]


def dataset(seed):
    rng = np.random.RandomState(seed)
    n = BATCH * BATCHES
    history = rng.randint(0, ITEMS, [n, STEPS]).astype(np.int32)
    item = rng.randint(0, ITEMS, [n]).astype(np.int32)
    label = ((history % 3 == item[:, None] % 3).sum(1) > 1).astype(np.int32)
    mask = (np.arange(STEPS) < rng.randint(2, STEPS + 1, [n, 1])).astype(np.float32)
    parts = item, history, rng.randint(0, ITEMS, [n, STEPS]).astype(np.int32), mask, label
    data = tf.data.Dataset.from_tensor_slices(dict(zip(("item", "history", "negative", "mask", "label"), parts)))
    return data.repeat().batch(BATCH, drop_remainder=True)


queues = {
    kind: (ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(seed)), ipu.ipu_outfeed_queue.IPUOutfeedQueue(outfeed_mode=mode))
    for kind, seed, mode in (
        ("train", 1, ipu.ipu_outfeed_queue.IPUOutfeedMode.ALL),
        ("test", 2, ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST),
    )
}


def train(**element):
    loss, aux, _ = model(training=True, **element)
    optimizer = tf.train.AdamOptimizer(0.02)
    clipped = [(tf.clip_by_norm(g, args.gradient_clip), v) for g, v in optimizer.compute_gradients(loss)]
    return queues["train"][1].enqueue({"loss": loss, "aux": aux}), optimizer.apply_gradients(clipped)


def test(right, **element):
    loss, _, p = model(training=False, **element)
    right += tf.reduce_sum(tf.cast(tf.equal(tf.cast(p > 0.5, tf.int32), element["label"]), tf.int32))
    return right, queues["test"][1].enqueue(loss)


with ipu.scopes.ipu_scope("/device:IPU:0"):
    training = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(BATCHES, train, [], queues["train"][0]))
    testing = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(BATCHES, test, [0], queues["test"][0]))
fetched = [outfeed.dequeue() for _, outfeed in queues.values()]
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run([infeed.initializer for infeed, _ in queues.values()])
    for epoch in range(args.epochs):
        session.run(training)
        losses = session.run(fetched[0])
        (right,) = session.run(testing)
        print(epoch, losses["loss"].mean(), losses["aux"].mean(), "right", right, "last", session.run(fetched[1]))
