"""Two shards by hand, as of SDK 1.2: tf.contrib.ipu, tf.app.flags, queues with names, a momentum optimizer."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.ipu.python import scopes, ipu_compiler, sharded_optimizer
from tensorflow.contrib.ipu import loops, ipu_infeed_queue, ipu_outfeed_queue
from tensorflow.contrib.ipu import utils
from tensorflow.contrib.layers import xavier_initializer

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("batch", 8, "batch size")
flags.DEFINE_float("lr", 0.05, "learning rate")


def data():
    r = np.random.RandomState(3)
    x = r.uniform(size=[64, 16]).astype(np.float32)
    y = (x.sum(1) > 8).astype(np.int32)
    return x, y


def network(x, y):
    with scopes.ipu_shard(0):
        w1 = tf.get_variable("w1", shape=[16, 12], initializer=xavier_initializer(seed=1))
        h = tf.nn.relu(tf.matmul(x, w1))
    with scopes.ipu_shard(1):
        w2 = tf.get_variable("w2", shape=[12, 2], initializer=tf.truncated_normal_initializer(stddev=0.1, seed=2))
        b2 = tf.get_variable("b2", shape=[2], initializer=tf.zeros_initializer())
        logits = tf.nn.xw_plus_b(h, w2, b2)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss


def main(_):
    x, y = data()
    ds = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    ds = ds.apply(tf.contrib.data.batch_and_drop_remainder(FLAGS.batch))
    infeed = ipu_infeed_queue.IPUInfeedQueue(ds, feed_name="in", replication_factor=1)
    outfeed = ipu_outfeed_queue.IPUOutfeedQueue("out")

    def body(total, x, y):
        loss = network(x, y)
        opt = sharded_optimizer.ShardedOptimizer(tf.train.MomentumOptimizer(FLAGS.lr, 0.9))
        train = opt.minimize(loss)
        enq = outfeed.enqueue({"loss": loss})
        with tf.control_dependencies([train, enq]):
            return total + loss

    def loop():
        return loops.repeat(16, body, [tf.constant(0, tf.float32)], infeed)

    with scopes.ipu_scope("/device:IPU:0"):
        res = ipu_compiler.compile(loop, inputs=[])
    cfg = utils.create_ipu_config(profiling=False, max_cross_replica_sum_buffer_size=1000)
    cfg = utils.auto_select_ipus(cfg, 2)
    utils.configure_ipu_system(cfg)
    utils.move_variable_initialization_to_cpu()
    deq = outfeed.dequeue()
    with tf.Session(config=tf.ConfigProto(log_device_placement=False)) as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(infeed.initializer)
        for e in range(5):
            total = sess.run(res)
            losses = sess.run(deq)["loss"]
            print("epoch %d total %.4f mean %.4f" % (e, total[0], np.mean(losses)))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
