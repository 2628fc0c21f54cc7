# %% [markdown]
# # Serve a model, with and without TensorFlow
#
# `export_for_ipu_serving` writes a directory that holds a model twice: as an ordinary SavedModel, and as a compiled
# program that needs no TensorFlow.

# %%
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.python import ipu

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)

with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], steps_per_execution=50)
    history = model.fit(images, labels, epochs=20, verbose=0).history
    expected = model.predict(images[:32], verbose=0)
print(f"accuracy {history['accuracy'][-1]:.1%}")

# %% [markdown]
# The shape of a batch is part of the program:

# %%
model.export_for_ipu_serving("digits/1", batch_size=32)
for path in sorted(Path("digits/1").rglob("*.*")):
    print(f"{path}  {path.stat().st_size:,} bytes")

# %% [markdown]
# ## With TensorFlow alone
#
# The SavedModel runs wherever TensorFlow does, without this package:

# %%
loaded = tf.saved_model.load("digits/1")
serve = loaded.signatures["serving_default"]
((name, spec),) = serve.structured_input_signature[1].items()
(result,) = serve(**{name: tf.constant(images[:32])}).values()
print(spec)
print("largest difference:", float(abs(result.numpy() - expected).max()))

# %% [markdown]
# ## Without TensorFlow
#
# `engine.load` loads the compiled program. We start a new process to show what it needs:

# %%
program = """
import sys, time
begin = time.perf_counter()
import numpy as np
import engine
model = engine.load(sys.argv[1])
rows = np.load("rows.npy")
(first,) = model.run([rows])
seconds = [time.perf_counter() - begin]
begin = time.perf_counter()
for _ in range(1000):
    model.run([rows])
seconds.append(time.perf_counter() - begin)
print(f"imports, loading and the first batch: {seconds[0]:.2f} s; then {seconds[1] * 1000:.0f} us a batch of 32")
print("TensorFlow was imported:", "tensorflow" in sys.modules)
np.save("result.npy", first)
"""
np.save("rows.npy", images[:32])
(compiled,) = Path("digits/1/assets").glob("*.popef")
print(subprocess.run([sys.executable, "-c", program, compiled], check=True, capture_output=True, text=True).stdout)
print("largest difference:", float(abs(np.load("result.npy") - expected).max()))

# %% [markdown]
# ## As a server
#
# `python -m ipu.serving` answers the REST API of TensorFlow Serving. Requests may have any number of rows.

# %%
server = subprocess.Popen(
    [sys.executable, "-m", "ipu.serving", "digits", "--port", "8519"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
url = "http://127.0.0.1:8519/v1/models/digits"
begin = time.perf_counter()
while True:
    try:
        status = json.load(urllib.request.urlopen(url))
        break
    except OSError:
        time.sleep(0.05)
print(f"ready after {time.perf_counter() - begin:.1f} s")
status

# %%
request = json.dumps({"instances": images[:3].tolist()}).encode()
answer = json.load(urllib.request.urlopen(f"{url}:predict", request))
print("predicted", np.argmax(answer["predictions"], axis=1), "of", labels[:3])
server.terminate()
_ = server.wait()

# %% [markdown]
# [The page on serving](../serving.md) has preprocessing, several inputs, the server's limits, and deadlines.
