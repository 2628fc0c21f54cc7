"""Programs, each of which begins in an interpreter that has imported nothing, or only TensorFlow and Keras."""

from __future__ import annotations

import json
from textwrap import dedent

OURS = {"ipu", "engine", "keras_ext", "ipu_tensorflow_addons", "_ipu_hook", "_ipu_names"}
HEAVY = {"tensorflow", "keras", "tf_keras", "numpy", "numba"}
LISTING = "import sys; print(sorted(name for name in sys.modules if name.split('.')[0] in {}))"
DOCUMENTED = """
    from tensorflow.python import ipu
    import tensorflow.python.ipu.config as config
    from tensorflow.python.ipu.config import IPUConfig
    from tensorflow.python.ipu import utils
    import ipu as real, ipu.config, sys
    assert ipu is real and config is real.config is ipu.config and utils is real.utils
    assert IPUConfig is real.config.IPUConfig and IPUConfig.__module__.startswith('ipu.')
    assert ipu.__spec__.name == 'ipu' and config.__spec__.name == 'ipu.config'
    assert sys.modules['tensorflow.python.ipu.config'] is real.config
    print(ipu.config.IPUConfig().auto_select_ipus, ipu.__file__)
"""
KERAS_NAMES = """
    import tensorflow as tf, keras, tf_keras
    from tensorflow.keras import ipu as tensorflow_name
    from keras import ipu as keras_name
    from tensorflow.python import ipu
    assert keras.ipu is keras_name is tf.keras.ipu is tensorflow_name is ipu.keras
    assert keras.ipu.PipelineStage is keras.ipu.extensions.PipelineStage
    assert tf_keras.ipu is not keras.ipu and tf_keras.ipu.extensions is keras.ipu.extensions
    import ipu_tensorflow_addons
    from ipu_tensorflow_addons.keras.layers import Dropout
    assert Dropout is keras.ipu.layers.Dropout and ipu_tensorflow_addons.keras.optimizers is ipu.keras.optimizers
    from ipu_tensorflow_addons.v1.layers import PopnnDynamicLSTM
    assert PopnnDynamicLSTM is ipu.rnn_ops.PopnnDynamicLSTM
    print(keras.ipu.__name__, tf_keras.ipu.__name__)
"""
MISSING = """
    import keras
    for statement in ('import tensorflow.python.ipu.nothing', 'from tensorflow.python.ipu import nothing',
                      'from keras import nothing', 'keras.nothing'):
        try:
            exec(statement)
        except (ImportError, AttributeError) as error:
            print(type(error).__name__, error.name)
"""
RELOAD = """
    import importlib, importlib.util, sys, tensorflow, inspect, keras
    assert importlib.util.find_spec('tensorflow.python.ipu.config') is not None
    import tensorflow.python.ipu.config as config
    assert importlib.reload(config) is config is sys.modules['ipu.config']
    assert 'keras' in inspect.getsource(keras)
    print(type(keras.__loader__).__name__)
"""
WEIGHT = """
import sys, tensorflow, keras
PREFIXES = ("numba", "llvmlite", "engine", "keras_ext", "ipu")
before = set(sys.modules)

def new():
    return " ".join(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in PREFIXES))

from tensorflow.python import ipu
print(new())
ipu.config.IPUConfig()
ipu.utils
print(new())
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
print(new())
"""
AT_THE_START = {
    "ours at the start": LISTING.format(OURS),
    "heavy at the start": LISTING.format(HEAVY),
}
BESIDE_TENSORFLOW = {
    "ours beside TensorFlow": LISTING.format(OURS),
    "weight": WEIGHT,
    "missing": MISSING,
    "reload": RELOAD,
    "documented": DOCUMENTED,
    "keras names": KERAS_NAMES,
}
IN_FORKS = """
import json, os, sys, traceback

def printed(source):
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, 1)
        try:
            exec(source, {})
        except Exception:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as output:
        return output.read().strip()

first, others = json.load(sys.stdin)
printouts = {name: printed(source) for name, source in first.items()}
import tensorflow, keras
printouts |= {name: printed(source) for name, source in others.items()}
print(json.dumps(printouts))
"""
"""Source that prints each program's output or traceback; it forks one interpreter, which imports TensorFlow once."""


def given() -> str:
    """The input that IN_FORKS reads."""
    every = (AT_THE_START, BESIDE_TENSORFLOW)
    return json.dumps([{name: dedent(source) for name, source in programs.items()} for programs in every])
