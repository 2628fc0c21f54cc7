"""YOLO-like detection, as of SDK 2.0: own batch norms, warm-up and cosine in the graph, moving averages, a Saver."""

import argparse
import json
import math
import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.compiler.plugin.poplar.ops import gen_ipu_ops, gen_poputil_ops
from tensorflow.python import ipu
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops
from yolo_network import ANCHORS, CLASSES, STRIDE, darknet

assert gen_ipu_ops and gen_poputil_ops


class Dataset:
    def __init__(self, count, size, seed):
        self.rng, self.count, self.size = np.random.RandomState(seed), count, size

    def __iter__(self):
        grid = self.size // STRIDE
        for _ in range(self.count):
            image = self.rng.rand(self.size, self.size, 3).astype(np.float16).astype(np.float32)
            label = np.zeros([grid, grid, len(ANCHORS), 5 + CLASSES], np.float32)
            for _ in range(2):
                row, column, anchor = self.rng.randint(grid), self.rng.randint(grid), self.rng.randint(len(ANCHORS))
                centre = (np.array([column, row]) + self.rng.rand(2)) * STRIDE
                one_hot = np.eye(CLASSES)[self.rng.randint(CLASSES)]
                smooth = one_hot * 0.99 + 0.01 / CLASSES
                label[row, column, anchor] = [*centre, *(self.rng.rand(2) * 6 + 2), 1.0, *smooth]
            yield image, label


def giou(a, b):
    a = tf.concat([a[..., :2] - a[..., 2:] * 0.5, a[..., :2] + a[..., 2:] * 0.5], axis=-1)
    b = tf.concat([b[..., :2] - b[..., 2:] * 0.5, b[..., :2] + b[..., 2:] * 0.5], axis=-1)
    a = tf.concat([tf.minimum(a[..., :2], a[..., 2:]), tf.maximum(a[..., :2], a[..., 2:])], axis=-1)
    areas = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (a, b)]
    inner = tf.maximum(tf.minimum(a[..., 2:], b[..., 2:]) - tf.maximum(a[..., :2], b[..., :2]), 0.0)
    intersection = inner[..., 0] * inner[..., 1]
    union = areas[0] + areas[1] - intersection + 1e-9
    outer = tf.maximum(tf.maximum(a[..., 2:], b[..., 2:]) - tf.minimum(a[..., :2], b[..., :2]), 0.0)
    enclosing = outer[..., 0] * outer[..., 1] + 1e-9
    return tf.expand_dims(intersection / union - (enclosing - union) / enclosing, -1)


def losses(raw, decoded, label):
    respond, size = label[..., 4:5], STRIDE * int(label.shape[1])
    scale = 2.0 - label[..., 2:3] * label[..., 3:4] / size**2
    box = respond * scale * (1 - giou(decoded[..., :4], label[..., :4]))
    focal = tf.pow(tf.abs(respond - decoded[..., 4:5]), 2)
    conf = focal * tf.nn.sigmoid_cross_entropy_with_logits(labels=respond, logits=raw[..., 4:5])
    prob = respond * tf.nn.sigmoid_cross_entropy_with_logits(labels=label[..., 5:], logits=raw[..., 5:])
    return [tf.reduce_mean(tf.reduce_sum(each, axis=[1, 2, 3, 4])) for each in (box, conf, prob)]


class YoloTrain(object):
    def __init__(self, opts):
        self.opts = opts
        dataset = Dataset(opts.images, opts.size, 5)
        shapes = ([opts.size] * 2 + [3], [opts.size // STRIDE] * 2 + [len(ANCHORS), 5 + CLASSES])
        generated = tf.data.Dataset.from_generator(
            lambda: iter(Dataset(opts.images, opts.size, 5)), (tf.float32, tf.float32), shapes
        )
        assert dataset.count % opts.batch_size == 0
        self.data = generated.batch(opts.batch_size, drop_remainder=True).repeat()
        self.warmup = opts.warmup_steps
        self.total = opts.loops * opts.steps_per_loop

    def learning_rate(self, step):
        step = tf.cast(step, tf.float32)
        return tf.cond(
            pred=step < self.warmup,
            true_fn=lambda: (step + 1) / self.warmup * self.opts.lr,
            false_fn=lambda: (
                1e-4
                + 0.5
                * (self.opts.lr - 1e-4)
                * (1 + tf.cos((step - self.warmup) / (self.total - self.warmup) * math.pi))
            ),
        )

    def step(self, image, label):
        with tf.variable_scope("yolov3", use_resource=True):
            raw, decoded = darknet(image, True)
            box, conf, prob = losses(raw, decoded, label)
            step = tf.get_variable("steps", [], tf.int32, tf.zeros_initializer(), trainable=False)
            moving = tf.train.ExponentialMovingAverage(0.9)
            lr = self.learning_rate(step)
            optimizer = tf.train.AdamOptimizer(lr, epsilon=1e-3)
            optimizer = (
                ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(optimizer, self.opts.accumulate)
                if self.opts.accumulate > 1
                else ipu.optimizers.CrossReplicaOptimizer(optimizer)
            )
            with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
                train = optimizer.minimize(box + conf + prob)
            with tf.control_dependencies([train]):
                average = moving.apply(tf.trainable_variables())
                with tf.control_dependencies([tf.assign_add(step, 1), average]):
                    return self.outfeed.enqueue({"box": box, "conf": conf, "prob": prob, "lr": lr})

    def train(self):
        infeed = ipu_infeed_queue.IPUInfeedQueue(self.data, feed_name="infeed")
        self.outfeed = ipu_outfeed_queue.IPUOutfeedQueue(feed_name="outfeed")
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            op = ipu_compiler.compile(lambda: loops.repeat(self.opts.steps_per_loop, self.step, None, infeed))
        outfed = self.outfeed.dequeue()
        with tf.name_scope("loader_and_saver"):
            loader, saver = tf.train.Saver(tf.global_variables()), tf.train.Saver(tf.global_variables(), max_to_keep=2)
        config = ipu.utils.IPUConfig() if hasattr(ipu.utils, "IPUConfig") else ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(infeed.initializer)
            for number in range(self.opts.loops):
                session.run(op)
                found = session.run(outfed)
                print(json.dumps({name: [round(float(x), 5) for x in values] for name, values in found.items()}))
            path = saver.save(session, os.path.join(self.opts.save_path, "yolo.ckpt"), global_step=self.total)
            session.run(tf.global_variables_initializer())
            loader.restore(session, path)
            averages = [v for v in tf.global_variables() if "ExponentialMovingAverage" in v.name]
            print(len(averages), sum(float(np.abs(x).sum()) for x in session.run(averages)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="yolov3 training", formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", type=json.loads, default={})
    parser.add_argument("--save-path", default=tempfile.mkdtemp())
    opts = parser.parse_args()
    defaults = {
        "batch_size": 2,
        "size": 16,
        "images": 8,
        "loops": 3,
        "steps_per_loop": 4,
        "lr": 0.01,
        "warmup_steps": 4,
        "accumulate": 2,
    }
    for key, value in dict(defaults, **opts.config).items():
        setattr(opts, key, value)
    YoloTrain(opts).train()
