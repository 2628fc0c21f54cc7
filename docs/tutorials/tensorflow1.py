# %% [markdown]
# # A program of TensorFlow 1
#
# Programs written for the first IPUs run unchanged, with graphs, sessions, queues and `ipu_compiler.compile`. This one
# trains on handwritten digits, in a loop on the device that queues feed.

# %%
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from tensorflow.python import ipu

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)

# %% [markdown]
# The graph begins with its queues: one for batches, one for results.

# %%
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1).repeat()
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset.batch(32, drop_remainder=True))
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

# %% [markdown]
# A step, with `get_variable`, an optimizer of TensorFlow 1, and a row of results for the host:


# %%
def dense(x, units, name):
    with tf.variable_scope(name, use_resource=True):
        kernel = tf.get_variable("kernel", [x.shape[-1], units])
        return tf.matmul(x, kernel) + tf.get_variable("bias", [units], initializer=tf.zeros_initializer())


def step(x, y):
    logits = dense(tf.nn.relu(dense(x, 64, "hidden")), 10, "logits")
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
    return tf.group(train, outfeed.enqueue({"loss": loss, "accuracy": accuracy}))


# %% [markdown]
# `loops.repeat` runs it 500 times on the device, and `compile` makes the loop one operation of the graph:

# %%
with ipu.scopes.ipu_scope("/device:IPU:0"):
    program = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(500, step, [], infeed))
results = outfeed.dequeue()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
program

# %% [markdown]
# The session runs it. Variables stay on the device from run to run.

# %%
session = tf.Session()
session.run([tf.global_variables_initializer(), infeed.initializer])
for _ in range(4):
    session.run(program)
    rows = session.run(results)
    print(f"{len(rows['loss'])} steps: loss {rows['loss'].mean():.4f}, accuracy {rows['accuracy'].mean():.1%}")

# %% [markdown]
# A `Saver` reads them from the device, as any operation of the graph does:

# %%
saver = tf.train.Saver()
path = saver.save(session, "digits/model.ckpt")
kernel = session.run(tf.global_variables()[0])
print(path, [name for name, _ in tf.train.list_variables(path)][:3])
print("same:", np.array_equal(kernel, tf.train.load_variable(path, "hidden/kernel")))
session.close()

# %% [markdown]
# `python -m ipu.check program.py` reads your program without running it, and names each line that needs a change.
# [TensorFlow 1](../tensorflow1.md) says what works; [estimators](../estimators.md) run, too.
