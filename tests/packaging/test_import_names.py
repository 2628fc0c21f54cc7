"""The names under which programs import the project, in fresh interpreters with the project installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from tests.interrupting import HANGS_SECONDS

INSTALLED = any(
    file.name == "ipu_hook.pth"
    for distribution in importlib.metadata.distributions(name="software-ipu")
    for file in distribution.files or ()
)
pytestmark = pytest.mark.skipif(not INSTALLED, reason="the project is on the path, but not installed")

OURS = {"ipu", "engine", "keras_ext", "ipu_tensorflow_addons", "_ipu_hook"}
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
    print(ipu.config.IPUConfig().auto_select_ipus)
"""
KERAS_NAMES = """
    import tensorflow as tf, keras, tf_keras
    from tensorflow.keras import ipu as tensorflow_name
    from keras import ipu as keras_name
    from tensorflow.python import ipu
    assert keras.ipu is keras_name is tf.keras.ipu is tensorflow_name is ipu.keras
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
PROGRAMS = {
    "ours at the start": LISTING.format(OURS),
    "heavy at the start": LISTING.format(HEAVY),
    "ours beside TensorFlow": "import tensorflow, keras; " + LISTING.format(OURS),
    "missing": MISSING,
    "reload": RELOAD,
    "documented": DOCUMENTED,
    "keras names": KERAS_NAMES,
}
IN_ORDER = """
import contextlib, io, json, sys, traceback
printouts = {}
for name, source in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(source, {})
        except Exception:
            traceback.print_exc(file=sys.stdout)
    printouts[name] = printed.getvalue().strip()
print(json.dumps(printouts))
"""


def python(source: str, *options: str, given: str = "", **environment: str) -> str:
    """What a fresh interpreter prints when it runs `source` away from the project's folder."""
    done = subprocess.run(
        [sys.executable, *options, "-c", dedent(source)],
        capture_output=True,
        text=True,
        input=given,
        cwd="/",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def printouts() -> dict[str, str]:
    """What each of PROGRAMS prints, or its traceback, one after the other in one interpreter: TensorFlow loads once."""
    programs = {name: dedent(source) for name, source in PROGRAMS.items()}
    return dict(json.loads(python(IN_ORDER, given=json.dumps(programs), TF_USE_LEGACY_KERAS="0")))


def test_programs_that_use_none_of_the_names_import_nothing(printouts: dict[str, str]) -> None:
    assert printouts["ours at the start"] == printouts["ours beside TensorFlow"] == "['_ipu_hook']"
    assert printouts["heavy at the start"] == "[]"


def test_documented_names_of_the_ipu_package(printouts: dict[str, str]) -> None:
    assert printouts["documented"] == "[]"


def test_each_keras_has_a_package_and_tensorflow_has_that_of_its_keras(printouts: dict[str, str]) -> None:
    """With TensorFlow's legacy Keras: tests/tf_keras/test_installing.py."""
    assert printouts["keras names"] == "keras_ext.names.keras3 keras_ext.names.tf_keras"


def test_names_that_are_not_there(printouts: dict[str, str]) -> None:
    assert printouts["missing"].split("\n") == [
        "MissingModule tensorflow.python.ipu.nothing",
        "MissingImport ipu",
        "ImportError keras",
        "AttributeError nothing",
    ]


def test_find_spec_and_reload(printouts: dict[str, str]) -> None:
    assert printouts["reload"] == "SourceFileLoader"


@pytest.mark.explore
def test_parents_imported_before_a_late_hook() -> None:
    source = f"""
        import sys
        sys.path[:0] = {[path for path in sys.path if path]!r}
        import keras, tf_keras, tensorflow
        assert '_ipu_hook' not in sys.modules
        import ipu
        from tensorflow.python import ipu as found
        assert found is ipu
        print(keras.ipu is ipu.keras, tf_keras.ipu.extensions is keras.ipu.extensions)
    """
    assert python(source, "-S", TF_USE_LEGACY_KERAS="0") == "True True"


def test_hook_imports_nothing_but_sys() -> None:
    hook = importlib.util.find_spec("_ipu_hook")
    assert hook is not None and hook.origin is not None
    source = f"""
        import sys
        sys.path.append({os.path.dirname(hook.origin)!r})
        before = set(sys.modules)
        import _ipu_hook
        print(set(sys.modules) - before)
    """
    assert python(source, "-S", "-I") == "{'_ipu_hook'}"
