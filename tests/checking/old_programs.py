"""Short programs in the manner of Graphcore's public examples, and the findings of the check.

For each: the source, findings as (line, level, part of the name, part of the advice), and names that work.
"""

from __future__ import annotations

KERAS_24 = """\
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

cfg = ipu.utils.create_ipu_config(profiling=True, use_poplar_text_report=False)
cfg = ipu.utils.auto_select_ipus(cfg, 1)
ipu.utils.configure_ipu_system(cfg)

strategy = ipu.ipu_strategy.IPUStrategy()
with strategy.scope():
    model = ipu.keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(lr=0.01))
    model.fit_generator(data, epochs=4)
"""
KERAS_26 = """\
import argparse
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

def make_divisible(number, divisor):
    return number - number % divisor

def main(keras_args):
    ipu_config = ipu.config.IPUConfig()
    ipu_config.auto_select_ipus = 2
    ipu_config.optimizations.merge_remote_buffers = ipu.config.MergeRemoteBuffersBehaviour.MERGE
    ipu_config.matmuls.poplar_options = {"availableMemoryProportion": "0.3", "partialType": "half"}
    ipu_config.convolution.poplar_options = {"partialsType": "half"}
    ipu_config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        inputs = keras.Input(shape=(28, 28, 1))
        with keras.ipu.PipelineStage(0):
            x = keras.layers.Flatten()(inputs)
        model = keras.Model(inputs, keras.layers.Dense(10)(x))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        model.compile("sgd", "mse", steps_per_execution=64)
"""
TF1_QUEUES = """\
import numpy as np
import tensorflow as tf
from tensorflow.python.ipu import ipu_compiler, ipu_infeed_queue, ipu_outfeed_queue, loops, scopes, utils

dataset = tf.data.Dataset.from_tensor_slices(np.zeros([8, 4], np.float32)).batch(2, drop_remainder=True)
infeed = ipu_infeed_queue.IPUInfeedQueue(dataset, feed_name="training")
outfeed = ipu_outfeed_queue.IPUOutfeedQueue(feed_name="outfeed")

def body(total, x):
    weights = tf.get_variable("w", [4, 1])
    return total + tf.reduce_sum(tf.matmul(x, weights), reduction_indices=[0]), outfeed.enqueue(total)

def net():
    return loops.repeat(10, body, [0.0], infeed)

with scopes.ipu_scope("/device:IPU:0"):
    run = ipu_compiler.compile(net, [])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(infeed.initializer)
    sess.run(run)
"""
CONTRIB = """\
from tensorflow.contrib import ipu
from tensorflow.contrib.ipu.python import popnn_rnn
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
opts = ipu.utils.create_ipu_config()
"""
TF1_PIPELINE = """\
import tensorflow.compat.v1 as tf
from tensorflow.python.ipu.ops import pipelining_ops
from tensorflow.python.ipu.optimizers import GradientAccumulationReductionMethod
from tensorflow.python.ipu.gradient_accumulation_optimizer import GradientAccumulationOptimizerV2

def stage(x):
    return tf.layers.dense(x, 10)

def optimizer_function(loss):
    return pipelining_ops.OptimizerFunctionOutput(tf.train.AdamOptimizer(lr=0.01), loss)

pipelining_ops.pipeline(
    [stage, stage],
    gradient_accumulation_count=8,
    infeed_queue=None,
    device_mapping=[0, pipelining_ops._ALL_DEVICES],
    optimizer_function=optimizer_function,
    pipeline_schedule=pipelining_ops.PipelineSchedule.Grouped,
)
"""
POPDIST = """\
import popart
import poptorch, popdist, popdist.tensorflow
from tensorflow.python import ipu

class Trainer:
    def __init__(self):
        self.config = ipu.config.IPUConfig()
        self.config.floating_point_behaviour.esr = True
        self.config.norms.use_stable_statistics = True
        popdist.tensorflow.set_ipu_config(self.config, 1)

    def start(self, strategy, step):
        return strategy.experimental_run_v2(step)
"""
ESTIMATOR = """\
import tensorflow.compat.v1 as tf
from tensorflow.keras.layers import CuDNNLSTM
from tensorflow.python import ipu

def model_fn(features, labels, mode):
    return ipu.ipu_estimator.IPUEstimatorSpec(mode=mode, loss=labels)

ipu_run_config = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=10, num_replicas=1, compile_summary=True)
config = ipu.ipu_run_config.RunConfig(ipu_run_config=ipu_run_config, log_step_count_steps=10)
estimator = ipu.ipu_estimator.IPUEstimator(model_fn=model_fn, config=config, params={})
flags = tf.app.flags
flags.DEFINE_integer("batch_size", 8, "")
print(flags.FLAGS.batch_size)
"""
ADDONS = """\
from ipu_tensorflow_addons.keras.layers import LayerNormalization, LSTM
from ipu_tensorflow_addons.keras.optimizers import AdamIpuOptimizer
from ipu_tensorflow_addons.keras.optimizers import LAMBIpuOptimizers
from tensorflow import keras

model = keras.Sequential([keras.layers.Dense(3, batch_input_shape=(8, 4))])
model.compile(optimizer=AdamIpuOptimizer(), loss="mse", run_eagerly=True, steps_per_execution=8)
model.fit(x, y, workers=4)
"""
GUARDED = """\
try:
    from tensorflow.python import ipu
except ImportError:
    from tensorflow.contrib import ipu
try:
    import poptorch
except ImportError:
    poptorch = None

def layers(tf, keras):
    return tf.nothing, keras.nothing

ipu.cross_replica_ops.cross_replica_sums(1.0)
"""
PYTHON_2 = """\
import tensorflow as tf
print "IPU"
"""

PROGRAMS: dict[str, tuple[str, list[tuple[int, str, str, str]], list[str]]] = {
    "Keras of TensorFlow 2.4": (
        KERAS_24,
        [
            (11, "change", "ipu.keras.Sequential", "tensorflow.keras.Sequential"),
            (12, "note", "steps_per_execution", "above 1"),
            (12, "change", "SGD(lr=)", "learning_rate"),
            (13, "change", ".fit_generator()", "fit takes generators"),
        ],
        ["ipu.utils.auto_select_ipus", "ipu.utils.create_ipu_config", "ipu.ipu_strategy.IPUStrategy"],
    ),
    "Keras of TensorFlow 2.6": (
        KERAS_26,
        [
            (12, "note", "optimizations.merge_remote_buffers", "no effect here: "),
            (13, "change", "matmuls.poplar_options['partialType']", "Nearest: partialsType"),
            (14, "change", "convolution.poplar_options", "convolutions.poplar_options"),
        ],
        ["ipu.config.MergeRemoteBuffersBehaviour.MERGE", "tf.keras.ipu.PipelineStage"],
    ),
    "queues of TensorFlow 1": (
        TF1_QUEUES,
        [
            (10, "change", "tf.get_variable", "import tensorflow.compat.v1 as tf"),
            (11, "change", "tf.reduce_sum(reduction_indices=)", "no such argument"),
            (19, "change", "tf.Session", "import tensorflow.compat.v1 as tf"),
            (20, "change", "tf.global_variables_initializer", "import tensorflow.compat.v1 as tf"),
        ],
        ["ipu.ipu_compiler.compile", "ipu.loops.repeat", "ipu.scopes.ipu_scope", "ipu.utils"],
    ),
    "tf.contrib": (
        CONTRIB,
        [
            (1, "change", "tf.contrib.ipu", "from tensorflow.python import ipu"),
            (2, "change", "tf.contrib.ipu", "from tensorflow.python import ipu"),
            (6, "change", "tf.contrib.ipu", "from tensorflow.python import ipu"),
        ],
        [],
    ),
    "pipeline of TensorFlow 1": (
        TF1_PIPELINE,
        [
            (7, "change", "tf.compat.v1.layers.dense", "TF_USE_LEGACY_KERAS=1"),
            (10, "change", "AdamOptimizer(lr=)", ""),
            (16, "change", "_ALL_DEVICES", "one IPU for each stage"),
        ],
        ["ipu.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2"],
    ),
    "other frameworks": (
        POPDIST,
        [
            (1, "refused", "popart", "TensorFlow"),
            (2, "refused", "poptorch", "PyTorch"),
            (9, "note", "norms.use_stable_statistics", "no effect here"),
            (13, "change", ".experimental_run_v2()", "run"),
        ],
        ["ipu.config.IPUConfig", "popdist.tensorflow.set_ipu_config"],
    ),
    "estimator": (
        ESTIMATOR,
        [(2, "change", "CuDNNLSTM", "")],
        ["ipu.ipu_estimator.IPUEstimator", "ipu.ipu_run_config.RunConfig"],
    ),
    "addons": (
        ADDONS,
        [
            (3, "change", "LAMBIpuOptimizers", "Nearest: "),
            (6, "change", "Dense(batch_input_shape=)", "keras.Input(batch_shape=...)"),
            (7, "refused", ".compile(run_eagerly=)", "Leave it out"),
            (8, "change", ".fit(workers=)", "PyDataset"),
        ],
        ["ipu_tensorflow_addons.keras.layers.LSTM"],
    ),
    "guarded imports": (GUARDED, [(13, "change", "cross_replica_sums", "Nearest: ")], ["ipu"]),
    "Python 2": (PYTHON_2, [(2, "change", "the file", "not Python 3")], []),
}
