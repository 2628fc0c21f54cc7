"""Forecasts of weekly sales by an LSTM, as of SDK 2.1: IPUStrategy, a loop of steps in tf.function, Keras' optimizer."""

import argparse
import os

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def series(shops, weeks):
    rng = np.random.RandomState(4)
    phase, level = rng.rand(shops, 1) * 6, rng.rand(shops, 1)
    week = np.arange(weeks)[None, :]
    return (level + 0.5 * np.sin(week / 4 + phase) + rng.randn(shops, weeks) * 0.02).astype(np.float32)


def windows(args):
    sales = series(args.shops, args.weeks)
    xs, ys = [], []
    for start in range(args.weeks - args.window - args.horizon):
        xs.append(sales[:, start : start + args.window, None])
        ys.append(sales[:, start + args.window : start + args.window + args.horizon])
    return np.concatenate(xs), np.concatenate(ys)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shops", type=int, default=4)
    parser.add_argument("--weeks", type=int, default=40)
    parser.add_argument("--window", type=int, default=6)
    parser.add_argument("--horizon", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    return parser.parse_args()


def main():
    args = parse_args()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    x, y = windows(args)
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(args.batch, drop_remainder=True)
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        initial = tf.keras.initializers.GlorotUniform(seed=3)
        cell = tf.keras.layers.LSTM(6, kernel_initializer=initial, recurrent_initializer=initial)
        head = tf.keras.layers.Dense(args.horizon, kernel_initializer=initial)
        optimizer = tf.keras.optimizers.Adam(
            tf.keras.optimizers.schedules.ExponentialDecay(0.02, decay_steps=args.steps, decay_rate=0.8)
        )
        model = tf.keras.Sequential([cell, head])
        model.build([args.batch, args.window, 1])
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def train_step(x, y):
            with tf.GradientTape() as tape:
                prediction = model(x, training=True)
                loss = tf.reduce_mean(tf.keras.losses.huber(y, prediction))
            gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            outfeed.enqueue({"loss": loss, "mape": tf.reduce_mean(tf.abs(prediction - y) / (1.0 + tf.abs(y)))})

        @tf.function(jit_compile=True)
        def train(iterator):
            for _ in tf.range(args.steps):
                train_step(*next(iterator))

        iterator = iter(data)
        for epoch in range(args.epochs):
            strategy.run(train, args=[iterator])
            found = outfeed.dequeue()
            print("epoch %d" % epoch, *("%s %.5f" % (name, np.mean(found[name])) for name in sorted(found)))
        print(*("%.4f" % value for value in np.ravel(model(x[:4]))))


if __name__ == "__main__":
    main()
