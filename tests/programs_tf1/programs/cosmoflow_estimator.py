"""CosmoFlow with an IPUEstimator, as of SDK 2.0: tf.layers, float16 weights kept in float32, hooks, early evaluation."""

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ipu_estimator import IPUEstimator, IPUEstimatorSpec
from tensorflow.python.ipu.ipu_run_config import IPURunConfig, RunConfig

tf.logging.set_verbosity(tf.logging.ERROR)
SIZE = 4


def float32_getter(getter, name, shape=None, dtype=None, *args, **kwargs):
    if dtype != tf.float16:
        return getter(name, shape, dtype, *args, **kwargs)
    return tf.cast(getter(name, shape, tf.float32, *args, **kwargs), tf.float16)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    kernel = lambda seed: tf.initializers.he_normal(seed=seed)  # noqa: E731
    x = tf.cast(features, params["dtype"])
    with tf.variable_scope("model", custom_getter=float32_getter if params["dtype"] == tf.float16 else None):
        for layer in range(2):
            x = tf.layers.conv3d(
                x, 4, 2, padding="valid", name="conv%d" % layer, kernel_initializer=kernel(layer), activation=tf.nn.relu
            )
        x = tf.layers.dense(tf.layers.flatten(x), 8, tf.nn.relu, name="fc", kernel_initializer=kernel(7))
        x = tf.cast(tf.layers.dense(x, 3, name="out", kernel_initializer=kernel(8)), tf.float32)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return IPUEstimatorSpec(mode, predictions={"parameters": x})
    decay = params["l2"] * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "bias" not in v.name])
    loss = tf.losses.mean_squared_error(labels, x) + decay
    if mode == tf.estimator.ModeKeys.EVAL:
        return IPUEstimatorSpec(mode, loss=loss, eval_metrics=(metrics_fn, [labels, x]))
    assert training
    step = tf.cast(tf.train.get_global_step(), tf.float32)
    rate = tf.train.polynomial_decay(params["rate"], step, params["total"], params["rate"] / 10, power=1.0)
    return IPUEstimatorSpec(mode, loss=loss, train_op=tf.train.AdamOptimizer(rate, epsilon=1e-3).minimize(loss))


def metrics_fn(labels, predictions):
    return {
        "mae": tf.metrics.mean_absolute_error(labels, predictions),
        "rmse": tf.metrics.root_mean_squared_error(labels, predictions),
    }


def input_fn(mode, params):
    rng = np.random.RandomState(mode != "train")
    y = rng.uniform(-1, 1, [32, 3]).astype(np.float32)
    x = (rng.rand(32, SIZE, SIZE, SIZE, 1) * (1.5 + y[:, 0])[:, None, None, None, None]).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y) if mode != "infer" else x)
    data = data.repeat() if mode != "infer" else data
    return data.batch(params["batch"], drop_remainder=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches-per-step", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    options = ipu.utils.create_ipu_config(profiling=False, use_poplar_text_report=False)
    options = ipu.utils.auto_select_ipus(options, num_ipus=1)
    config = RunConfig(
        ipu_run_config=IPURunConfig(iterations_per_loop=args.batches_per_step, ipu_options=options),
        log_step_count_steps=args.batches_per_step,
        save_summary_steps=args.batches_per_step,
        model_dir=tempfile.mkdtemp(),
        tf_random_seed=42,
    )
    params = {
        "rate": args.rate,
        "total": 8 * args.batches_per_step,
        "l2": 1e-3,
        "batch": args.batch,
        "dtype": tf.float16 if args.half else tf.float32,
    }
    estimator = IPUEstimator(model_fn, config=config, params=params)
    for _ in range(3):
        estimator.train(input_fn, steps=2 * args.batches_per_step)
        found = estimator.evaluate(input_fn, steps=args.batches_per_step)
        print(*("%s %.5f" % (name, found[name]) for name in sorted(found)))
    predictions = [each["parameters"] for each in estimator.predict(input_fn)]
    print(len(predictions), *("%.4f" % value for value in np.concatenate(predictions)[:9]))


if __name__ == "__main__":
    main()
