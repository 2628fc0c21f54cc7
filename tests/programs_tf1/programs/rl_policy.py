"""Policy gradients with an LSTM, as of SDK 1.2: replicas that sum gradients, many feature look-ups, synthetic plays."""

import argparse
import time
from collections import namedtuple

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_compiler, rnn_ops, utils
from tensorflow.python.ipu.ops import cross_replica_ops

parser = argparse.ArgumentParser(description="RL benchmark")
parser.add_argument("--micro_batch_size", type=int, default=4)
parser.add_argument("--time_steps", type=int, default=3)
parser.add_argument("--num_ipus", type=int, default=2)
parser.add_argument("--device_iterations", type=int, default=3)
parser.add_argument("--iterations", type=int, default=3)
args = parser.parse_args()
LSTM_HIDDEN_SIZE, ACTIONS = 8, 4
Embedding = namedtuple("Embedding", ["name", "rows", "width", "hot"])
EMBEDDINGS = [Embedding("abilities", 9, 3, 2), Embedding("items", 12, 4, 3), Embedding("npcs", 5, 2, 1)]


def build_train_op(state, ids, actions, rewards):
    state, ids, actions, rewards = (
        tf.transpose(x, [1, 0, *range(2, len(x.shape))]) for x in (state, ids, actions, rewards)
    )
    features = [state]
    for e, columns in zip(EMBEDDINGS, tf.split(ids, [e.hot for e in EMBEDDINGS], axis=2)):
        with tf.variable_scope("emb_" + e.name, use_resource=True):
            table = tf.get_variable(
                "table",
                [e.rows, e.width],
                initializer=tf.constant_initializer(np.random.RandomState(e.rows).randn(e.rows, e.width) / 3),
            )
            features.append(tf.reduce_max(tf.nn.embedding_lookup(table, columns), axis=2))
    x = tf.concat(features, axis=2)
    with tf.variable_scope("policy", use_resource=True):
        x = tf.layers.dense(x, 8, tf.nn.relu, kernel_initializer=tf.glorot_uniform_initializer(3), name="in")
        lstm = rnn_ops.PopnnLSTM(
            LSTM_HIDDEN_SIZE, dtype=tf.float32, weights_initializer=tf.glorot_uniform_initializer(seed=2), name="lstm"
        )
        initial = tf.zeros([int(x.shape[1]), LSTM_HIDDEN_SIZE])
        state_tuple = tf.contrib.rnn.LSTMStateTuple(initial, initial)
        x, _ = lstm(x, state_tuple, training=True)
        logits = tf.layers.dense(x, ACTIONS, use_bias=False, kernel_initializer=tf.glorot_uniform_initializer(4))
    likelihood = tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.one_hot(actions, ACTIONS), logits=logits)
    entropy = -tf.reduce_sum(tf.nn.softmax(logits) * tf.nn.log_softmax(logits), axis=-1)
    loss = tf.reduce_mean(likelihood * rewards) - 0.01 * tf.reduce_mean(entropy)
    optimizer = tf.train.AdamOptimizer(0.01)
    pairs = optimizer.compute_gradients(loss)
    pairs = [(cross_replica_ops.cross_replica_sum(g) / scale(), v) for g, v in pairs if g is not None]
    mean = cross_replica_ops.cross_replica_sum(loss) / scale()
    return mean, optimizer.apply_gradients(pairs)


def scale():
    """The number of replicas, each of which has a part of the mean."""
    return cross_replica_ops.cross_replica_sum(tf.constant(1.0))


def play(rng):
    t, b = args.time_steps, args.micro_batch_size
    ids = np.concatenate([rng.randint(0, e.rows, [t, b, e.hot]) for e in EMBEDDINGS], 2).astype(np.int32)
    actions = rng.randint(0, ACTIONS, [t, b]).astype(np.int32)
    rewards = (actions == ids[:, :, 0] % ACTIONS).astype(np.float32)
    found = rng.randn(t, b, 5).astype(np.float32), ids, actions, rewards - rewards.mean(0, keepdims=True)
    return tuple(np.swapaxes(x, 0, 1) for x in found)


def run():
    rng = np.random.RandomState(1)
    plays = [play(rng) for _ in range(args.device_iterations)]
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(tuple(np.stack(x) for x in zip(*plays))).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, "feed", replication_factor=1)

        def body(loss, *play):
            return build_train_op(*play)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            res = ipu_compiler.compile(lambda: ipu.loops.repeat(args.device_iterations, body, [0.0], infeed), inputs=[])
        cfg = utils.create_ipu_config(
            profiling=False, use_poplar_text_report=False, always_rearrange_copies_on_the_host=True
        )
        cfg = utils.auto_select_ipus(cfg, [args.num_ipus])
        utils.configure_ipu_system(cfg)
        utils.move_variable_initialization_to_cpu()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            sess.run(infeed.initializer)
            for it_count in range(args.iterations):
                start = time.time()
                (loss,) = sess.run(res) if isinstance(res, list) else [sess.run(res)]
                assert time.time() - start > 0
                print("{} loss {:.6f}".format(it_count, np.mean(loss)))
            for v in tf.trainable_variables():
                print(v.op.name, v.shape.as_list(), np.abs(v.eval(sess)).mean())


if __name__ == "__main__":
    run()
