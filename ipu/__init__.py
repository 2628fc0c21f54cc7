"""The public names of `tensorflow.python.ipu`: one module for each documented module, imported on first access."""

from __future__ import annotations

import sys
from typing import Any

import _ipu_hook

# Covers the starts in which ipu_hook.pth did not run: python -S, zip applications, PYTHONPATH.
_ipu_hook.install()

from ipu._internal.names.version1_notes import note_version_1  # noqa: E402 the hook first

note_version_1()

if "tensorflow" in sys.modules:  # else in time for the first program
    from ipu._internal.graphs.global_step import extend_global_step

    extend_global_step()


HOMES = {
    "ProfileReport": "ipu._internal.profiling.callback",
    "allow_out_of_memory": "ipu._internal.compiler.fit",
    "accelerate": "keras_ext.acceleration",
    "profile": "ipu._internal.profiling.make_report",
}
ALSO = {
    "function": "ipu.ops.functional_ops",
    "ipu_optimizer": "ipu.optimizers",
    "outlined_function": "ipu.ops.functional_ops",
}
"""Undocumented names that the original package re-exports and public programs use; `dir` does not list them."""
NAMES = (
    *HOMES,
    "all_to_all_op",
    "application_compile_op",
    "autoshard",
    "config",
    "control_flow_ops",
    "cross_replica_ops",
    "cross_replica_optimizer",
    "custom_ops",
    "data",
    "dataset_benchmark",
    "distributed",
    "eager",
    "embedded_runtime",
    "embedding_ops",
    "functional_ops",
    "grad_util_ops",
    "gradient_accumulation",
    "gradient_accumulation_optimizer",
    "horovod",
    "image_ops",
    "internal_ops",
    "ipu_compiler",
    "ipu_estimator",
    "ipu_infeed_queue",
    "ipu_multi_worker_strategy",
    "ipu_outfeed_queue",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
    "ipu_strategy",
    "keras",
    "loops",
    "map_gradient_optimizer",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "ops",
    "optimizers",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "scopes",
    "serving",
    "sharded_optimizer",
    "sharding",
    "slicing_ops",
    "statistics_ops",
    "summary_ops",
    "utils",
    "within_replica_ops",
)
"""The documented names: modules, and names of internal modules that this package re-exports."""


def __getattr__(name: str) -> Any:
    """Imports the submodule `name`, so that `ipu.config` works after `from tensorflow.python import ipu`."""
    from ipu._internal.names.namespace import attribute  # not before a name is used

    return attribute(__name__, NAMES, HOMES | ALSO, name)


def __dir__() -> list[str]:
    """Lists the documented names, imported or not."""
    return sorted(NAMES)
