"""Detection on the trained network, as of SDK 2.4: inference in a pipeline, suppression of boxes on the host."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ipu.ops import pipelining_ops
from yolo_network import darknet

tf.logging.set_verbosity(tf.logging.ERROR)


def nms(boxes, threshold, score_threshold):
    kept, boxes = [], boxes[boxes[:, 4] > score_threshold]
    while len(boxes):
        best = np.argmax(boxes[:, 4])
        kept.append(boxes[best])
        a, rest = boxes[best], np.delete(boxes, best, 0)
        low = np.maximum(a[:2] - a[2:4] / 2, rest[:, :2] - rest[:, 2:4] / 2)
        high = np.minimum(a[:2] + a[2:4] / 2, rest[:, :2] + rest[:, 2:4] / 2)
        inner = np.prod(np.maximum(high - low, 0), 1)
        boxes = rest[inner / (a[2] * a[3] + rest[:, 2] * rest[:, 3] - inner) < threshold]
    return np.array(kept)


def main(args):
    images = np.random.RandomState(7).rand(args.images, 16, 16, 3).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(args.images, dtype=np.int32)))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data.batch(1, drop_remainder=True).repeat(), prefetch_depth=2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(buffer_depth=4)

    def backbone(image, number):
        with tf.variable_scope("yolov3", use_resource=True):
            return darknet(image, False)[1], number

    def head(decoded, number):
        scores = decoded[..., 4:5] * tf.reduce_max(decoded[..., 5:], -1, keep_dims=True)
        best = tf.argmax(decoded[..., 5:], -1, output_type=tf.int32)
        boxes = tf.concat([decoded[..., :4], scores, tf.expand_dims(tf.to_float(best), -1)], -1)
        top, _ = tf.math.top_k(tf.reshape(scores, [-1]), 5)
        return tf.reshape(boxes, [int(boxes.shape[0]), -1, 6]), top, number

    def net():
        return pipelining_ops.pipeline(
            [backbone, head],
            gradient_accumulation_count=4,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            pipeline_schedule=pipelining_ops.PipelineSchedule.Grouped,
        )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        run = ipu.ipu_compiler.compile(net, [])
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [2]
    config.configure_ipu_system()
    dequeue = outfeed.dequeue()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(infeed.initializer)
        for _ in range(args.images // 4):
            session.run(run)
            boxes, top, numbers = session.run(dequeue)
            for box, best, number in zip(boxes[:, 0], top, numbers[:, 0]):
                found = nms(box, 0.45, np.sort(box[:, 4])[-8])
                print("image", number, "boxes", len(found), "best", found[0].round(3).tolist(), best.round(3)[:2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=int, nargs="?", default=8)
    main(parser.parse_args())
