"""Names of this project's packages under TensorFlow's and Keras' names, for `_ipu_hook.py`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

KERAS_3, TF_KERAS = "keras_ext.names.keras3", "keras_ext.names.tf_keras"
OF_TENSORFLOW = "the one of tf.keras"
TF_ESTIMATOR = "ipu._internal.estimators.tf_estimator"
ALIASES = {
    "tensorflow.python.ipu": "ipu",
    "ipu.keras": OF_TENSORFLOW,  # so it is tensorflow.python.ipu.keras, too, as TensorFlow 2.4 had it
    "keras.ipu": KERAS_3,
    "keras._tf_keras.keras.ipu": KERAS_3,
    "tf_keras.ipu": TF_KERAS,
    "tf_keras.api._v2.keras.ipu": TF_KERAS,
    "tensorflow.keras.ipu": OF_TENSORFLOW,  # TensorFlow loads its Keras a second time under this name
    "ipu_tensorflow_addons": "keras_ext.names.addons",
    "popdist": "ipu._internal.popdist",
    "keras_ext.names.addons.keras.layers": "ipu.keras.layers",
    "keras_ext.names.addons.keras.optimizers": "ipu.keras.optimizers",
    "keras_ext.names.addons.layers": "ipu.keras.layers",
    "keras_ext.names.addons.optimizers": "ipu.keras.optimizers",
    "keras_ext.names.addons.v1.layers.rnn_ops": "ipu.ops.rnn_ops",
    "keras_ext.names.addons.v1.optimizers": "ipu.optimizers",
    "keras_ext.extensions.keras_extension_base": "keras_ext.extensions.model_extensions",
    "keras_ext.extensions.pipeline_stage_assignment": "keras_ext.pipelining.assignments",
    f"{KERAS_3}.extensions": "keras_ext.extensions",
    f"{TF_KERAS}.extensions": "keras_ext.extensions",
    "tensorflow.compiler.plugin": "ipu._internal.plugin",
    "tensorflow.estimator": TF_ESTIMATOR,  # which TensorFlow has no longer
    "tensorflow._api.v2.compat.v1.estimator": TF_ESTIMATOR,
    "tensorflow.compat.v1.estimator": TF_ESTIMATOR,
    "tensorflow.python.estimator": TF_ESTIMATOR,
    "tensorflow_estimator": TF_ESTIMATOR,  # a package of its own, up to TensorFlow 2.15
    "tensorflow_estimator.python": TF_ESTIMATOR,
    "tensorflow_estimator.python.estimator": TF_ESTIMATOR,
    "tensorflow.python.keras.ipu": OF_TENSORFLOW,
    "tensorflow.python.estimator.export": "ipu._internal.estimators.export",
    "tensorflow.python.keras.datasets": "keras.datasets",  # not among what TensorFlow has kept of its old Keras
}
MODULES = (
    *(
        "ops.all_to_all_op",
        "ops.application_compile_op",
        "ops.control_flow_ops",
        "ops.cross_replica_ops",
        "ops.custom_ops",
    ),
    "ops.embedded_runtime",
    *(
        "ops.embedding_ops",
        "ops.functional_ops",
        "ops.grad_util_ops",
        "ops.image_ops",
        "ops.internal_ops",
        "ops.math_ops",
        "ops.nn_ops",
    ),
    *("ops.normalization_ops", "ops.pipelining_ops", "ops.rand_ops", "ops.reduce_scatter_op", "ops.replication_ops"),
    *("ops.rnn_ops", "ops.slicing_ops", "ops.statistics_ops", "ops.summary_ops", "ops.within_replica_ops"),
    *("optimizers.cross_replica_optimizer", "optimizers.gradient_accumulation_optimizer"),
    *("optimizers.ipu_optimizer", "optimizers.map_gradient_optimizer", "optimizers.sharded_optimizer"),
)
"""Modules of `ipu` that are documented with and without their package (Python API, table 18.1)."""
ALIASES |= {f"ipu.{module.partition('.')[2]}": f"ipu.{module}" for module in MODULES}
ALIASES |= {  # of TensorFlow 1's tf.contrib
    "ipu.popnn_normalization": "ipu.ops.normalization_ops",
    "ipu.popnn_rnn": "ipu.ops.rnn_ops",
    "ipu.popops_cross_replica_sum": "ipu.ops.cross_replica_ops",
    "ipu.poprand": "ipu.ops.rand_ops",
}
ALIASES |= {
    f"{package}.python.estimator.{module}": TF_ESTIMATOR
    for package in ("tensorflow", "tensorflow_estimator")
    for module in ("estimator", "estimator_lib", "exporter", "mode_keys", "model_fn", "run_config", "training")
}
ATTRIBUTES = [alias for alias in ALIASES if alias.endswith((".ipu", ".datasets", ".estimator"))]
PARENTS = {
    parent: {alias.rpartition(".")[2]: alias for alias in ATTRIBUTES if alias.rpartition(".")[0] == parent}
    for parent in {alias.rpartition(".")[0] for alias in ATTRIBUTES} - ALIASES.keys()
}
"""Modules that get a lazy attribute, with the alias behind each of its names."""


def real_name(name: str) -> str | None:
    """The name in this project behind an alias or something below it; None for every other name."""
    alias = name
    while alias and alias not in ALIASES:
        alias = alias.rpartition(".")[0]
    if not alias:
        return None
    real = ALIASES[alias]
    return (keras_of_tensorflow() if real is OF_TENSORFLOW else real) + name[len(alias) :]


def keras_of_tensorflow() -> str:
    """The package for the Keras that `tf.keras` is in this process, by the variable that TensorFlow reads."""
    return TF_KERAS if os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1") else KERAS_3


def add_lazy_attribute(module: ModuleType) -> None:
    """Lets attributes like `module.ipu` work without an import statement; the module's own `__getattr__` still runs."""
    aliases, inner = PARENTS[module.__name__], module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> object:
        if name in aliases:
            return import_module(aliases[name])
        if inner is not None:
            return inner(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    module.__getattr__ = __getattr__


def parent_spec(name: str, path: Any, target: Any, ours: object) -> ModuleSpec | None:
    """The spec of a parent by other finders than `ours`; its loader adds the lazy attribute after its one execution."""
    others = (finder for finder in sys.meta_path if finder is not ours)
    spec = next((found for finder in others if (found := finder.find_spec(name, path, target)) is not None), None)
    if spec is None:
        return None
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        add_lazy_attribute(module)

    loader.exec_module = exec_module
    return spec
