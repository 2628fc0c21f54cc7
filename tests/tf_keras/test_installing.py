"""Each Keras is extended when a program imports it, before or after the strategy; no Keras is imported for that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupting import HANGS_SECONDS

ROOT = Path(__file__).parent.parent.parent
MODEL = """
import numpy as np
def runs_on_the_engine(keras, strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile('sgd', 'mse')
    model.fit(np.ones((8, 2), np.float32), np.ones((8, 1), np.float32), verbose=0)
    return type(model.train_function).__module__ == 'keras_ext.training'
"""


def python(source: str, legacy: str = "0") -> list[str]:
    """The lines that a fresh interpreter prints when it runs `source`."""
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": legacy,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", MODEL + source],
        capture_output=True,
        text=True,
        env=environment,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_legacy_keras_of_tensorflow_without_keras_3() -> None:
    source = """
import sys
import tensorflow as tf
from tensorflow.python import ipu
strategy = ipu.ipu_strategy.IPUStrategy()
print(runs_on_the_engine(tf.keras, strategy), tf.keras.Model.__module__.split('.')[0], 'keras' in sys.modules)
import keras
print(runs_on_the_engine(keras, strategy), keras.__version__[0])
import tf_keras
from tensorflow.keras import ipu as tensorflow_name
from keras import ipu as keras_name
print(keras.ipu is keras_name is not tf.keras.ipu, ipu.keras is tf.keras.ipu is tensorflow_name is tf_keras.ipu)
"""
    assert python(source, legacy="1") == ["True", "tf_keras", "False", "True", "3", "True", "True"]


@pytest.mark.explore
def test_tf_keras_imported_after_the_strategy() -> None:
    """The strategy imports neither Keras' extensions nor tf_keras, and reports nothing that draws them."""
    source = """
import importlib.util, sys
from tensorflow.python import ipu
ipu.ProfileReport, ipu.ipu_strategy
print([name for name in sys.modules if name.split('.')[0] in ('keras_ext', 'vl_convert', 'jinja2', 'numba')])
strategy = ipu.ipu_strategy.IPUStrategy(enable_keras_extensions=True)
print('tf_keras' in sys.modules, 'keras_ext.frameworks.tf_keras' in sys.modules)
assert importlib.util.find_spec('tf_keras') is not None
from tf_keras.src.engine import training
import tf_keras
print(runs_on_the_engine(tf_keras, strategy), type(tf_keras.__loader__).__name__)
import keras
print(runs_on_the_engine(keras, strategy))
"""
    assert python(source) == ["[]", "False", "False", "True", "SourceFileLoader", "True"]


@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_framework_is_extended_once(name: str) -> None:
    import importlib

    from ipu._internal.keras_hooks import install

    model = importlib.import_module(name).Model
    install()
    before = model.make_train_function
    install()
    assert model.make_train_function is before
