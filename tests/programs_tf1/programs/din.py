"""Deep interest network, as of SDK 1.3 and 1.4: host embeddings, attention over clicks, dice, AUC on the host."""

import argparse
import logging

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.embedding_ops import HostEmbeddingOptimizerSpec, create_host_embedding

logging.basicConfig(level=logging.INFO)
SEQUENCE = 5


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--embedding-dim", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=4, help="of one call")
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=2)
    return parser.parse_args()


def dice(x, name):
    with tf.variable_scope(name, use_resource=True):
        alphas = tf.get_variable("alpha", x.get_shape()[-1], initializer=tf.constant_initializer(0.1))
        mean = tf.reduce_mean(x, axis=0)
        std = tf.sqrt(tf.reduce_mean(tf.square(x - mean), axis=0) + 1e-5)
        p = tf.sigmoid((x - mean) / (std + 1e-5))
        return alphas * (1.0 - p) * x + p * x


def dense(x, units, name):
    return tf.contrib.layers.fully_connected(
        x, units, activation_fn=None, scope=name, weights_initializer=tf.glorot_uniform_initializer(seed=len(name))
    )


def attention(query, facts, mask):
    queries = tf.reshape(tf.tile(query, [1, facts.shape[1]]), tf.shape(facts))
    joined = tf.concat([queries, facts, queries - facts, queries * facts], axis=-1)
    scores = tf.transpose(dense(tf.nn.sigmoid(dense(joined, 8, "f1_att")), 1, "f2_att"), [0, 2, 1])
    paddings = tf.ones_like(scores) * (-(2**32) + 1)
    scores = tf.nn.softmax(tf.where(tf.cast(tf.expand_dims(mask, 1), tf.bool), scores, paddings))
    return tf.squeeze(tf.matmul(scores, facts), [1])


class DIN:
    def __init__(self, args):
        spec = HostEmbeddingOptimizerSpec(args.learning_rate)
        self.args, self.tables = args, {}
        for name, rows, seed in (("uid", 12, 1), ("mid", 30, 2), ("cat", 9, 3)):
            self.tables[name] = create_host_embedding(
                name + "_embedding",
                shape=[rows, args.embedding_dim],
                dtype=tf.float32,
                optimizer_spec=spec,
                initializer=tf.random_uniform_initializer(-0.3, 0.3, seed=seed),
            )

    def __call__(self, uid, mid, cat, mid_his, cat_his, mask):
        look = lambda name, ids: self.tables[name].lookup(ids)
        user = look("uid", uid)
        item = tf.concat([look("mid", mid), look("cat", cat)], 1)
        history = tf.concat([look("mid", mid_his), look("cat", cat_his)], 2)
        summed = tf.reduce_sum(history * tf.expand_dims(mask, -1), 1)
        x = tf.concat([user, item, summed, item * summed, attention(item, history, mask)], -1)
        x = dice(dense(x, 10, "f1"), "dice_1")
        return tf.nn.softmax(dense(dice(dense(x, 6, "f2_"), "dice_2"), 2, "f3__")) + 0.00000001


def generate(args, count):
    rng = np.random.RandomState(args.seed)
    for _ in range(count):
        b = args.batch_size
        uid, mid, cat = rng.randint(0, 12, b), rng.randint(0, 30, b), rng.randint(0, 9, b)
        mids, cats = rng.randint(0, 30, [b, SEQUENCE]), rng.randint(0, 9, [b, SEQUENCE])
        mask = (np.arange(SEQUENCE) < rng.randint(1, SEQUENCE + 1, [b, 1])).astype(np.float32)
        clicked = ((mids % 3 == mid[:, None] % 3) * mask).sum(1) > 1
        yield tuple(x.astype(np.int32) for x in (uid, mid, cat, mids, cats)) + (
            mask,
            np.stack([clicked, ~clicked], 1).astype(np.float32),
        )


def auc(scores):
    positives, negatives = scores[scores[:, 1] == 1, 0], scores[scores[:, 1] == 0, 0]
    return np.mean((positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives))


def main():
    args = arguments()
    graph = tf.Graph()
    with graph.as_default():
        model = DIN(args)
        kinds = (tf.int32,) * 5 + (tf.float32,) * 2
        b = args.batch_size
        shapes = ((b,), (b,), (b,), (b, SEQUENCE), (b, SEQUENCE), (b, SEQUENCE), (b, 2))
        data = tf.data.Dataset.from_generator(lambda: generate(args, args.max_steps), kinds, shapes).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.prefetch(2), feed_name="DIN_in")
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(feed_name="DIN_out")

        def step(uid, mid, cat, mids, cats, mask, target):
            y = model(uid, mid, cat, mids, cats, mask)
            loss = -tf.reduce_mean(tf.log(y) * target)
            train = tf.train.GradientDescentOptimizer(args.learning_rate).minimize(loss)
            with tf.control_dependencies([train]):
                right = tf.cast(tf.equal(tf.round(y), target), tf.float32)
                return outfeed.enqueue((loss, tf.reduce_mean(right), y, target))

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(args.iterations, step, [], infeed), [])
        outfed = outfeed.dequeue()
        saver = tf.train.Saver()
        opts = ipu.utils.create_ipu_config()
        opts = ipu.utils.set_ipu_connection_type(opts, ipu.utils.DeviceConnectionType.ON_DEMAND, ipu_version="ipu2")
        ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(opts, 1))
        ipu.utils.move_variable_initialization_to_cpu()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            sess.run(infeed.initializer)
            with (
                model.tables["uid"].register(sess),
                model.tables["mid"].register(sess),
                model.tables["cat"].register(sess),
            ):
                for step_number in range(0, args.max_steps, args.iterations):
                    sess.run(run)
                    loss, accuracy, y, target = sess.run(outfed)
                    scores = np.stack([y[..., 0].ravel(), target[..., 0].ravel()], 1)
                    print(
                        "step %d loss %.5f accuracy %.4f auc %.4f"
                        % (step_number, loss.mean(), accuracy.mean(), auc(scores))
                    )
            for name, table in sorted(model.tables.items()):
                print(name, np.abs(sess.run(table.get_embedding_tensor())).mean())
            assert saver.save(sess, "din")


main()
