"""The network of the YOLO programs."""

import numpy as np
import tensorflow as tf

ANCHORS = np.array([[2.0, 3.0], [4.0, 2.0]], np.float32)
CLASSES, STRIDE = 3, 4


def convolutional(x, filters, size, training, name, downsample=False, activate=True, bn=True):
    with tf.variable_scope(name):
        if downsample:
            x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "CONSTANT")
        weight = tf.get_variable(
            "weight",
            [size, size, int(x.shape[-1]), filters],
            tf.float32,
            tf.random_normal_initializer(stddev=0.2, seed=len(name)),
        )
        strides, padding = ((1, 2, 2, 1), "VALID") if downsample else ((1, 1, 1, 1), "SAME")
        x = tf.nn.conv2d(input=x, filter=weight, strides=strides, padding=padding)
        x = (
            batch_norm(x, training)
            if bn
            else tf.nn.bias_add(x, tf.get_variable("bias", [filters], initializer=tf.constant_initializer(0.0)))
        )
        return tf.nn.leaky_relu(x, alpha=0.1) if activate else x


def batch_norm(x, training, decay=0.9):
    shape = x.shape[-1:]
    beta = tf.get_variable("beta", shape, initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", shape, initializer=tf.ones_initializer())
    moving_mean = tf.get_variable("moving_mean", shape, initializer=tf.zeros_initializer(), trainable=False)
    moving_var = tf.get_variable("moving_variance", shape, initializer=tf.ones_initializer(), trainable=False)
    if not training:
        return tf.nn.batch_normalization(x, moving_mean, moving_var, beta, gamma, 1e-3)
    x, mean, variance = tf.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-3, is_training=True)
    for moving, value in ((moving_mean, mean), (moving_var, variance)):
        update = tf.assign_sub(moving, (moving - value) * (1 - decay))
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
    return x


def residual(x, filters, training, name):
    with tf.variable_scope(name):
        y = convolutional(convolutional(x, filters, 1, training, "conv1"), int(x.shape[-1]), 3, training, "conv2x")
        return x + y


def darknet(image, training):
    x = convolutional(image, 4, 3, training, "conv0")
    x = route = residual(convolutional(x, 6, 3, training, "down1", downsample=True), 4, training, "residual0")
    x = convolutional(x, 8, 3, training, "down2__", downsample=True)
    x = convolutional(x, 8, 3, training, "down3_____", downsample=True)
    x = tf.image.resize_nearest_neighbor(x, (int(x.shape[1]) * 2, int(x.shape[2]) * 2))
    x = tf.concat([x, tf.nn.max_pool(route, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")], axis=-1)
    x = convolutional(x, len(ANCHORS) * (5 + CLASSES), 1, training, "conv_lbbox", activate=False, bn=False)
    batch, grid = int(x.shape[0]), int(x.shape[1])
    raw = tf.reshape(x, [batch, grid, grid, len(ANCHORS), 5 + CLASSES])
    y = tf.tile(tf.range(grid, dtype=tf.int32)[:, tf.newaxis], [1, grid])
    cells = tf.cast(tf.stack([tf.transpose(y), y], -1)[tf.newaxis, :, :, tf.newaxis, :], tf.float32)
    xy = (tf.sigmoid(raw[..., :2]) + cells) * STRIDE
    wh = tf.exp(tf.minimum(raw[..., 2:4], 4.0)) * ANCHORS
    return raw, tf.concat([xy, wh, tf.sigmoid(raw[..., 4:])], axis=-1)
