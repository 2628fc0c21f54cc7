"""BERT pre-training in a pipeline, as of SDK 1.4 to 2.1: tied embeddings, LAMB of its own, a fed learning rate."""

import argparse
import json
import math
import re

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu
from tensorflow.python.ipu import embedding_ops, pipelining_ops
from tensorflow.python.ipu.ops.nn_ops import gelu

CONFIG = json.loads("""{"hidden": 8, "layers": 2, "heads": 2, "intermediate": 16, "vocab": 24, "max_position": 10,
                        "initializer_range": 0.2, "max_predictions": 2, "type_vocab": 2}""")


class Lamb(tf.train.Optimizer):
    def __init__(
        self,
        learning_rate,
        weight_decay_rate=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        exclude_from_weight_decay=None,
        name="LAMB",
    ):
        super().__init__(False, name)
        self.lr, self.decay, self.beta_1, self.beta_2 = learning_rate, weight_decay_rate, beta_1, beta_2
        self.epsilon, self.exclude = epsilon, exclude_from_weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None or param is None:
                continue
            name = re.match("^(.*):\\d+$", param.name).group(1)
            zeros = {
                "shape": param.shape.as_list(),
                "dtype": tf.float32,
                "trainable": False,
                "initializer": tf.zeros_initializer(),
            }
            m, v = tf.get_variable(name + "/lamb_m", **zeros), tf.get_variable(name + "/lamb_v", **zeros)
            next_m = self.beta_1 * m + (1.0 - self.beta_1) * grad
            next_v = self.beta_2 * v + (1.0 - self.beta_2) * tf.square(grad)
            update = next_m / (tf.sqrt(next_v) + self.epsilon)
            if not any(re.search(each, name) for each in self.exclude):
                update += self.decay * param
            w_norm, u_norm = tf.norm(param, ord=2), tf.norm(update, ord=2)
            ratio = tf.where(tf.greater(w_norm, 0), tf.where(tf.greater(u_norm, 0), w_norm / u_norm, 1.0), 1.0)
            assignments += [param.assign(param - ratio * self.lr * update), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)


def initializer(seed):
    return tf.truncated_normal_initializer(stddev=CONFIG["initializer_range"], seed=seed)


def linear(x, units, name, seed):
    with tf.variable_scope(name):
        w = tf.get_variable("kernel", [x.shape[-1], units], initializer=initializer(seed))
        return tf.einsum("abc,cd->abd", x, w) + tf.get_variable("bias", [units], initializer=tf.zeros_initializer())


def attention(x, mask, seed):
    batch, length, hidden = x.shape.as_list()
    heads = CONFIG["heads"]
    qkv = tf.reshape(linear(x, 3 * hidden, "qkv", seed), [batch, length, 3, heads, hidden // heads])
    q, k, v = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))
    scores = tf.matmul(q, k, transpose_b=True) / math.sqrt(hidden // heads)
    probabilities = tf.nn.softmax(scores + (1.0 - tf.cast(mask[:, None, None, :], tf.float32)) * -10000.0)
    context = tf.reshape(tf.transpose(tf.matmul(probabilities, v), [0, 2, 1, 3]), [batch, length, hidden])
    return linear(context, hidden, "output", seed + 1)


def encoder(x, mask, layer):
    with tf.variable_scope("layer_%d" % layer):
        x = ipu.normalization_ops.layer_norm(x + attention(x, mask, layer * 10), scope="attention_norm", epsilon=1e-5)
        up = gelu(linear(x, CONFIG["intermediate"], "intermediate", layer * 10 + 2))
        return ipu.normalization_ops.layer_norm(
            x + linear(up, CONFIG["hidden"], "output_dense", layer * 10 + 3), scope="output_norm", epsilon=1e-5
        )


class PipelinedBert:
    def __init__(self, opts):
        self.opts = opts

    def table(self):
        with tf.variable_scope("bert/embeddings", reuse=tf.AUTO_REUSE):
            return tf.get_variable("word_embeddings", [CONFIG["vocab"], CONFIG["hidden"]], initializer=initializer(1))

    def embed(self, lr, ids, mask, segment, positions, labels, weights, nsp):
        x = embedding_ops.embedding_lookup(self.table(), tf.reshape(ids, [-1]))
        x = tf.reshape(x, [*ids.shape.as_list(), CONFIG["hidden"]])
        with tf.variable_scope("bert/embeddings"):
            types = tf.get_variable("token_type_embeddings", [2, CONFIG["hidden"]], initializer=initializer(2))
            places = tf.get_variable(
                "position_embeddings", [CONFIG["max_position"], CONFIG["hidden"]], initializer=initializer(3)
            )
        x += tf.matmul(tf.one_hot(segment, 2), tf.broadcast_to(types, [ids.shape[0], 2, CONFIG["hidden"]]))
        x = ipu.normalization_ops.layer_norm(x + places[: ids.shape[1]], scope="bert/embeddings/norm")
        return lr, x, mask, positions, labels, weights, nsp

    def layers(self, first, last):
        def stage(lr, x, mask, positions, labels, weights, nsp):
            with tf.variable_scope("bert/encoder"):
                for layer in range(first, last):
                    x = encoder(x, mask, layer + 1)
            return lr, x, mask, positions, labels, weights, nsp

        return stage

    def heads(self, lr, x, mask, positions, labels, weights, nsp):
        batch, length, hidden = x.shape.as_list()
        offsets = tf.reshape(tf.range(0, batch, dtype=tf.int32) * length, [-1, 1])
        rows = tf.gather(tf.reshape(x, [-1, hidden]), tf.reshape(positions + offsets, [-1]))
        logits = tf.matmul(rows, self.table(), transpose_b=True)
        with tf.variable_scope("cls/predictions"):
            logits += tf.get_variable("output_bias", [CONFIG["vocab"]], initializer=tf.zeros_initializer())
        losses = -tf.reduce_sum(tf.nn.log_softmax(logits) * tf.one_hot(tf.reshape(labels, [-1]), CONFIG["vocab"]), -1)
        w = tf.reshape(weights, [-1])
        mlm = tf.reduce_sum(losses * w) / (tf.reduce_sum(w) + 1e-5)
        right = tf.cast(tf.equal(tf.argmax(logits, -1, output_type=tf.int32), tf.reshape(labels, [-1])), tf.float32)
        with tf.variable_scope("cls/seq_relationship"):
            first = tf.squeeze(x[:, 0:1, :], axis=1)
            w_nsp = tf.get_variable("output_weights", [2, hidden], initializer=initializer(9))
            pair = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(nsp, [-1]), logits=tf.matmul(first, w_nsp, transpose_b=True)
            )
        return lr, mlm + tf.reduce_mean(pair), mlm, tf.reduce_mean(right)

    def optimizer(self, lr, loss, mlm, accuracy):
        lamb = Lamb(lr, 0.01, exclude_from_weight_decay=["norm", "LayerNorm", "bias"])
        scale = self.opts.loss_scaling
        mapped = ipu.optimizers.MapGradientOptimizer(lamb, lambda gradient, _: gradient / scale)
        return pipelining_ops.OptimizerFunctionOutput(mapped, loss * scale)


def data(opts):
    rng = np.random.RandomState(4)
    n, length, p = 32, CONFIG["max_position"], CONFIG["max_predictions"]
    columns = [
        rng.randint(0, CONFIG["vocab"], [n, length]),
        rng.rand(n, length) < 0.9,
        rng.randint(0, 2, [n, length]),
        rng.randint(0, length, [n, p]),
        rng.randint(0, CONFIG["vocab"], [n, p]),
        rng.rand(n, p),
        rng.randint(0, 2, [n, 1]),
    ]
    types = [np.int32] * 5 + [np.float32, np.int32]
    names = tuple(column.astype(kind) for column, kind in zip(columns, types))
    return tf.data.Dataset.from_tensor_slices(names).batch(opts.micro_batch_size, drop_remainder=True).repeat()


def main(opts):
    bert = PipelinedBert(opts)
    stages = [bert.embed, bert.layers(0, 1), bert.layers(1, 2), bert.heads]
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data(opts))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    lr = tf.placeholder(tf.float32, [], "learning_rate")

    def pipeline(lr):
        with tf.variable_scope("", use_resource=True):
            return pipelining_ops.pipeline(
                computational_stages=stages,
                gradient_accumulation_count=opts.gradient_accumulation_count,
                repeat_count=opts.repeats,
                inputs=[lr],
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                device_mapping=[0, 1, 2, 0],
                optimizer_function=bert.optimizer,
                pipeline_schedule=getattr(pipelining_ops.PipelineSchedule, opts.schedule),
                offload_weight_update_variables=False,
                name="Pipeline",
                reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
            )

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(pipeline, inputs=[lr])
    outfed = outfeed.dequeue()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.allow_recompute = True
    config.convolutions.poplar_options = {"partialsType": "half"}
    config.configure_ipu_system()
    ipu.utils.move_variable_initialization_to_cpu()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(infeed.initializer)
        for step in range(opts.steps):
            warm = min(1.0, (step + 1) / opts.warmup) * (1 - step / opts.steps) ** 0.5
            sess.run(train, {lr: opts.learning_rate * warm})
            rates, losses, mlm, accuracies = sess.run(outfed)
            print(
                "step %d lr %.6f loss %.5f mlm %.5f accuracy %.4f"
                % (step, rates[-1], losses.mean(), mlm.mean(), accuracies.mean())
            )
        for v in tf.trainable_variables():
            print(v.name.split("/")[-1], "%.5f" % np.abs(sess.run(v)).mean())


if __name__ == "__main__":
    tf.disable_eager_execution()
    tf.disable_v2_behavior()
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--gradient-accumulation-count", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--loss-scaling", type=float, default=16.0)
    parser.add_argument("--schedule", default="Grouped", choices=["Grouped", "Interleaved", "Sequential"])
    main(parser.parse_args())
