"""The names under which programs import the project, in fresh interpreters with the wheel installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.interrupting import HANGS_SECONDS


def python(source: str, *options: str, **environment: str) -> str:
    """Output of a fresh interpreter that runs `source` away from the project's folder."""
    done = subprocess.run(
        [sys.executable, *options, "-c", dedent(source)],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_programs_that_use_none_of_the_names_import_nothing(printouts: dict[str, str]) -> None:
    assert printouts["ours at the start"] == "['_ipu_hook']"
    assert printouts["ours beside TensorFlow"] == "['_ipu_hook', '_ipu_names']"
    assert printouts["heavy at the start"] == "[]"


def test_documented_names_of_the_ipu_package(printouts: dict[str, str], site: Path) -> None:
    assert printouts["documented"] == f"[] {site / 'ipu' / '__init__.py'}"


def test_each_keras_has_a_package_and_tensorflow_has_that_of_its_keras(printouts: dict[str, str]) -> None:
    """Each Keras has a package of names; tests/tf_keras/test_installing.py tests TensorFlow's legacy Keras."""
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
