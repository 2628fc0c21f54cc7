"""A conditional variational autoencoder, as of SDK 2.1: noise from the data set, annealed divergence, two optimizers."""

import argparse
from functools import partial

import numpy as np
import tensorflow as tf
from tensorflow.python.ipu import config, ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops, scopes

CLASSES, PIXELS, LATENT = 3, 12, 2


def fc(x, units, name, activation=tf.identity):
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE, use_resource=True):
        w = tf.get_variable(
            "w",
            shape=[x.get_shape().as_list()[1], units],
            initializer=tf.contrib.layers.variance_scaling_initializer(seed=len(name)),
        )
        return activation(tf.nn.xw_plus_b(x, w, tf.get_variable("b", [units], initializer=tf.zeros_initializer())))


def encoder(x, y):
    h = fc(tf.concat([x, y], 1), 8, "encoder/hidden", tf.nn.softplus)
    return fc(h, LATENT, "encoder/mean"), fc(h, LATENT, "encoder/log_variance")


def decoder(z, y):
    return fc(fc(tf.concat([z, y], 1), 8, "decoder/hidden1", tf.nn.elu), PIXELS, "decoder/logits")


def train_step(outfeed, args, count, features):
    x, y, noise = features["x"], tf.one_hot(features["label"], CLASSES), features["noise"]
    mean, log_variance = encoder(x, y)
    logits = decoder(mean + tf.exp(0.5 * log_variance) * noise, y)
    rebuilt = tf.reduce_mean(tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), 1))
    kl = -0.5 * tf.reduce_mean(tf.reduce_sum(1 + log_variance - tf.square(mean) - tf.exp(log_variance), 1))
    beta = tf.minimum(1.0, tf.cast(count, tf.float32) / args.anneal)
    loss = rebuilt + beta * kl
    updates = []
    for scope, rate in (("encoder", args.encoder_rate), ("decoder", args.decoder_rate)):
        optimizer = tf.train.AdamOptimizer(rate, beta1=0.5, name="Adam_" + scope)
        updates.append(optimizer.minimize(loss, var_list=tf.trainable_variables(scope)))
    enqueue = outfeed.enqueue({"rebuilt": rebuilt, "kl": kl, "beta": beta})
    return count + 1, tf.group(*updates), enqueue


def generator(args):
    rng = np.random.RandomState(9)
    base = rng.rand(CLASSES, PIXELS)
    while True:
        labels = rng.randint(0, CLASSES, [args.batch])
        x = (rng.rand(args.batch, PIXELS) < base[labels]).astype(np.float32)
        yield {"x": x, "label": labels.astype(np.int32), "noise": rng.randn(args.batch, LATENT).astype(np.float32)}


def main(args):
    kinds = {"x": tf.float32, "label": tf.int32, "noise": tf.float32}
    shapes = {"x": [args.batch, PIXELS], "label": [args.batch], "noise": [args.batch, LATENT]}
    data = tf.data.Dataset.from_generator(partial(generator, args), kinds, shapes)
    infeed, outfeed = ipu_infeed_queue.IPUInfeedQueue(data), ipu_outfeed_queue.IPUOutfeedQueue()
    count = tf.placeholder_with_default(0, [])

    def body(count, **features):
        return train_step(outfeed, args, count, features)

    z, y = tf.placeholder(tf.float32, [CLASSES, LATENT]), tf.constant(np.eye(CLASSES, dtype=np.float32))
    with scopes.ipu_scope("/device:IPU:0"):
        train = ipu_compiler.compile(lambda n: loops.repeat(args.steps, body, [n], infeed), [count])
        sample = ipu_compiler.compile(lambda z: tf.nn.sigmoid(decoder(z, y)), [z])
    outfed = outfeed.dequeue()
    options = config.IPUConfig()
    options.auto_select_ipus = 1
    options.configure_ipu_system()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        done = 0
        for _ in range(args.epochs):
            (done,) = session.run(train, {count: done})
            print(done, *("%s %.5f" % (name, values.mean()) for name, values in sorted(session.run(outfed).items())))
        (images,) = session.run(sample, {z: np.zeros([CLASSES, LATENT])})
        print(images.shape, images[:, :4])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--anneal", type=float, default=20)
    parser.add_argument("--encoder_rate", "-e", type=float, default=0.01)
    parser.add_argument("--decoder_rate", "-d", type=float, default=0.02)
    main(parser.parse_args())
