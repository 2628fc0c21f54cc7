"""Layers, hyperparameters and statistics of tf.contrib, as of SDK 1.2, in a small CNN."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib.training import HParams
from tensorflow.contrib.layers import fully_connected, conv2d, max_pool2d
import tensorflow.python.distribute.distribution_strategy_context
from tensorflow.python.ipu import ipu_compiler, scopes, utils, loops, ipu_infeed_queue

hp = HParams(hidden=12, rate=0.1, layers=[8, 4], train=True, name="x")
hp.parse("rate=0.05,layers=[6,4],train=false,hidden=10")
print(hp.values(), "rate" in hp, hp.get("none", 3), hp.to_json())


def layer_norm(x, name=None):
    return tf.contrib.layers.layer_norm(inputs=x, begin_norm_axis=-1, begin_params_axis=-1, scope=name)


r = np.random.RandomState(0)
X = r.rand(16, 8, 8, 3).astype(np.float32)
Y = (X.mean((1, 2, 3)) > 0.5).astype(np.int32)


def model(x, training):
    bn = {"is_training": training, "decay": 0.9, "scale": True, "updates_collections": None}
    ini = tf.contrib.layers.xavier_initializer_conv2d(seed=1)
    x = conv2d(
        x, 4, 3, normalizer_fn=contrib_layers.batch_norm, normalizer_params=bn, weights_initializer=ini, scope="c1"
    )
    x = max_pool2d(x, 2, scope="p1")
    x = conv2d(
        x,
        4,
        [3, 3],
        stride=2,
        weights_initializer=ini,
        scope="c2",
        weights_regularizer=contrib_layers.l2_regularizer(1e-3),
    )
    x = contrib_layers.flatten(x)
    x = layer_norm(x, "ln")
    x = contrib_layers.dropout(x, keep_prob=0.9, is_training=False)
    return fully_connected(x, 2, activation_fn=None, weights_initializer=tf.contrib.layers.xavier_initializer(seed=4))


ds = tf.data.Dataset.from_tensor_slices((X, Y)).apply(tf.contrib.data.batch_and_drop_remainder(8)).repeat()
options = tf.data.Options()
options.experimental_stats.aggregator = tf.data.experimental.StatsAggregator()
ds = ds.apply(tf.data.experimental.latency_stats("x")).with_options(options)
q = ipu_infeed_queue.IPUInfeedQueue(ds, "q")


def body(loss, x, y):
    with tf.variable_scope("m", use_resource=True, reuse=tf.AUTO_REUSE):
        logits = model(x, True)
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits) + tf.losses.get_regularization_loss()
    return tf.train.GradientDescentOptimizer(hp.rate).minimize(loss), loss


def body2(loss, x, y):
    t, loss = body(loss, x, y)
    with tf.control_dependencies([t]):
        return tf.identity(loss)


with scopes.ipu_scope("/device:IPU:0"):
    run = ipu_compiler.compile(lambda: loops.repeat(10, body2, [0.0], q))
utils.configure_ipu_system(utils.auto_select_ipus(utils.create_ipu_config(), 1))
with tf.Session() as s:
    s.run([tf.global_variables_initializer(), q.initializer])
    for _ in range(3):
        print(s.run(run))
    for v in tf.global_variables():
        print(v.op.name, round(float(np.abs(s.run(v)).mean()), 4))
