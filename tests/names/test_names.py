"""Names that modules list, and errors for names that do not exist: as they were typed, and their replacements."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import rlcompleter
from types import ModuleType, SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
import tf_keras

import ipu
from engine.errors import IPUError
from ipu._internal import keras_hooks
from ipu._internal.names import namespace
from ipu._internal.names.documented import NOT_HERE
from ipu._internal.names.missing import documented_name
from ipu._internal.names.other_releases import OTHER_RELEASES

STAGES = ("FunctionalLayerPipelineStageAssignment", "ModelLayerPipelineStageAssignment", "PipelineStage")
LISTED = {
    ipu.keras: {"extensions", "layers", "losses", "optimizers", *STAGES, "SequentialLayerPipelineStageAssignment"},
    ipu.data: {"ops"},
    ipu.data.ops: {"dataset_ops"},
    ipu.data.ops.dataset_ops: {"BufferDataset"},
    ipu.loops: {"repeat", "while_loop"},
    ipu.ipu_compiler: {"compile"},
    ipu.internal_ops: {"get_current_iteration_counter", "print_tensor"},
    ipu.serving: {"export_keras", "export_pipeline", "export_single_step"},
}


def test_modules_list_documented_names_and_nothing_else() -> None:
    for module, names in LISTED.items():
        assert set(dir(module)) == names, module
    assert {"config", "horovod", "keras", "loops", "ops", "profile", "utils"} - set(dir(ipu)) == set()
    assert not {"annotations", "compiler", "import_module", "profiling", "queues"} & set(dir(ipu))


def test_what_is_listed_exists() -> None:
    pending: list[ModuleType] = [ipu]
    seen = set()
    while pending:
        module = pending.pop()
        values = {name: getattr(module, name) for name in dir(module)}
        assert not [name for name in values if name.startswith("_")]
        inner = [value for value in values.values() if isinstance(value, ModuleType)]
        pending += [value for value in inner if value not in seen]
        seen.update(inner)
    assert len(seen) > 30


def test_completion() -> None:
    completer = rlcompleter.Completer({"keras": keras})
    found = [completer.complete("keras.ipu.", number) for number in range(10)]
    assert {match.removeprefix("keras.ipu.").rstrip("()") for match in found if match} == LISTED[ipu.keras]


STATEMENTS = {
    "ipu.ops.f8_ops.f8_matmul": ("ipu.ops.f8_ops.f8_matmul", "float16"),
    "gc.ops.f8_ops.f8_matmul": ("gc.ops.f8_ops.f8_matmul (ipu.f8_ops.f8_matmul)", "float16"),
    "keras.ipu.layers.PopnnGRUs(5)": ("keras.ipu.layers.PopnnGRUs", "Nearest: keras.ipu.layers.PopnnGRU"),
    "[keras.ipu.layers.GRUs for _ in 'a']": ("keras.ipu.layers.GRUs", "Nearest: keras.ipu.layers.GRU"),
    "tf_keras.ipu.layers.LSTMs(3).units": ("tf_keras.ipu.layers.LSTMs.*", "Nearest: .*.LSTM"),
    "tf.keras.ipu.optimizers.AdamIPUOptimizer": (
        "tf.keras.ipu.optimizers.AdamIPUOptimizer",
        "Nearest: keras.ipu.optimizers.AdamIpuOptimizer",
    ),
    "ipu.util.reset_ipu_seed": ("ipu.util.reset_ipu_seed", "Nearest: ipu.utils"),
    "keras.ipu.PipelineStages": ("keras.ipu.PipelineStages", "Nearest: keras.ipu.PipelineStage"),
    "getattr(ipu, 'f8_ops')": ("ipu.f8_ops", "float16"),
    "from tensorflow.python.ipu import f8_ops": ("tensorflow.python.ipu.f8_ops", "float16"),
    "from keras.ipu import metrics": ("keras.ipu.metrics", "does not exist"),
    "from keras.ipu.layers import Dropout, GRUs": ("keras.ipu.layers.GRUs", "Nearest: keras.ipu.layers.GRU"),
    "from ipu.internal_ops import print_tensor, recompute": ("ipu.internal_ops.recompute", "allow_recompute"),
    "import tensorflow.python.ipu.f8_ops as f8": ("tensorflow.python.ipu.f8_ops", "float16"),
    "from tensorflow.python.ipu.ops.f8_ops import *": ("tensorflow.python.ipu.ops.f8_ops", "float16"),
    "tf.estimator.DNNClassifier([8], [])": ("tf.estimator.DNNClassifier", "model function"),
    "tf.compat.v1.estimator.inputs.numpy_input_fn": (
        "tf.compat.v1.estimator.inputs.numpy_input_fn",
        "from_tensor_slices",
    ),
    "tf.estimator.RunConfigs": ("tf.estimator.RunConfigs", "Nearest: tf.estimator.RunConfig"),
    "from tensorflow.python.estimator.inputs import numpy_io": (
        "tensorflow.python.estimator.inputs.numpy_io",
        "from_tensor_slices",
    ),
    "from tensorflow.python.estimator import util": ("tensorflow.python.estimator.util", "does not exist"),
    "import tensorflow.python.ipu.nothing": ("tensorflow.python.ipu.nothing", "does not exist"),
}
NAMESPACE = {"ipu": ipu, "gc": ipu, "keras": keras, "tf_keras": tf_keras, "tf": tf, "importlib": importlib}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("in_function", [False, True])
def test_missing_names_are_named_as_they_were_typed(statement: str, in_function: bool) -> None:
    typed, advice = STATEMENTS[statement]
    imports = "import" in statement
    if in_function and not statement.endswith("*"):
        statement = f"def function():\n    {statement}\nfunction()"
    typed = typed.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(IPUError, match=f"Received: {typed}, which .*{advice}") as caught:
        exec(statement, dict(NAMESPACE))
    assert isinstance(caught.value, ImportError if imports else AttributeError)
    assert "keras_ext" not in str(caught.value)


@pytest.mark.parametrize("table", [NOT_HERE, OTHER_RELEASES], ids=["not here", "other releases"])
def test_every_name_of_the_tables(table: dict[str, str]) -> None:
    for name, advice in table.items():
        parts = name.split(".")
        value: Any = ipu
        for part in parts[1:]:
            assert getattr(value, part, None) is None or hasattr(value, part)
            value = getattr(value, part, None)
        assert value is None, f"{name} exists"
        with pytest.raises(AttributeError) as caught:
            exec(name, {"ipu": ipu})
        assert name in str(caught.value)
        assert advice in str(caught.value) or NOT_HERE.get(name, "") in str(caught.value)
        assert documented_name(f"tensorflow.python.{name}") == name


def test_probes_find_nothing() -> None:
    for name in (
        "tensorflow.python.ipu.f8_ops",
        "ipu.f8_ops",
        "keras.ipu.metrics",
        "tensorflow.python.ipu.ops.f8_ops",
    ):
        assert importlib.util.find_spec(name) is None
    assert importlib.util.find_spec("keras.ipu.extensions.model_extensions") is not None
    assert not hasattr(keras.ipu, "metrics") and getattr(ipu, "f8_ops", 3) == 3
    with pytest.raises(AttributeError):
        _ = ipu.__version__
    try:
        from keras.ipu import metrics
    except ImportError as error:
        assert error.name == "keras.ipu"
        metrics = keras.metrics
    assert metrics is keras.metrics


def test_nothing_is_collected_while_the_packages_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[bool] = []

    def imported(name: str) -> SimpleNamespace:
        enabled.append(gc.isenabled())
        return SimpleNamespace(install=lambda: enabled.append(gc.isenabled()), IPUConfig=None)

    for module in (keras_hooks, namespace):
        monkeypatch.setattr(module, "import_module", imported)
    keras_hooks.extend("keras")
    namespace.attribute("ipu", [], {"IPUConfig": "ipu.config"}, "IPUConfig")
    assert enabled == [False, True, False] and gc.isenabled()
