"""A small residual network with an estimator: trained, evaluated, and continued by others from its checkpoint."""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_estimator, ipu_run_config

tf.disable_v2_behavior()
rng = np.random.RandomState(0)
IMAGES, LABELS = rng.rand(32, 8, 8, 3).astype(np.float32), rng.randint(0, 4, 32).astype(np.int32)


def input_fn():
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).repeat().batch(8, drop_remainder=True)


def normal(seed, shape):
    return tf.constant_initializer(np.random.RandomState(seed).randn(*shape).astype(np.float32) * 0.2)


def convolved(x, features, seed, training, name):
    kernel = normal(seed, (3, 3, int(x.shape[-1]), features))
    x = tf.layers.conv2d(x, features, 3, padding="same", use_bias=False, kernel_initializer=kernel, name=f"c{name}")
    return tf.layers.batch_normalization(x, momentum=0.9, training=training, fused=True, name=f"b{name}")


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    x = tf.nn.relu(convolved(features, 8, 1, training, 1))
    x = tf.layers.max_pooling2d(tf.nn.relu(x + convolved(x, 8, 2, training, 2)), 4, 4)
    x = tf.layers.dense(tf.layers.flatten(x), 4, kernel_initializer=normal(3, (32, 4)), name="fc")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, x)
    loss += 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "kernel" in v.name])
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(x, -1))}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    rate = tf.train.piecewise_constant(tf.train.get_global_step(), [4, 8], [0.1, 0.05, 0.01])
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train = tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True).minimize(loss)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def estimator(folder, warm_start=None):
    options = ipu.config.IPUConfig()
    options.auto_select_ipus = 1
    run = ipu_run_config.IPURunConfig(iterations_per_loop=4, ipu_options=options)
    config = ipu_run_config.RunConfig(ipu_run_config=run, model_dir=folder, tf_random_seed=1)
    return ipu_estimator.IPUEstimator(model_fn=model_fn, config=config, params={}, warm_start_from=warm_start)


def show(trained):
    found = trained.evaluate(input_fn, steps=4)
    print(*(f"{name} {float(found[name]):.4f}" for name in sorted(found)))
    for name in sorted(trained.get_variable_names()):
        if "Momentum" not in name:
            print(name, f"{float(np.abs(trained.get_variable_value(name)).sum()):.4f}")


first = estimator("./first")
first.train(input_fn, steps=12)
show(first)
some = tf.estimator.WarmStartSettings(ckpt_to_initialize_from="./first", vars_to_warm_start="c.*|b1.*")
for number, source in enumerate(["./first", some]):
    second = estimator(f"./second_{number}", source)
    second.train(input_fn, steps=4)
    show(second)
