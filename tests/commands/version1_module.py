"""A module beside a program of TensorFlow 1."""

import tensorflow as tf
from tensorflow.contrib import layers


def model(x):
    with tf.variable_scope("model", use_resource=True):
        weights = tf.get_variable("weights", [3, 2], initializer=layers.xavier_initializer())
        return tf.reduce_sum(tf.matmul(x, weights), reduction_indices=[1])
