"""Documented names that do not exist here, and their replacements; a module's own entry is for the rest of it."""

_KERAS_MODEL = "a Keras model made in an IPUStrategy's scope, and its fit, evaluate and predict"
_REPLICAS = "IPUConfig.auto_select_ipus for replicas in one process, with IPUStrategy"
_SETTINGS = "IPUConfig for the device, and compile(steps_per_execution=...) of a Keras model for iterations"

NOT_HERE = {
    "ipu.horovod": _REPLICAS,
    "ipu.horovod.allgather": "ipu.all_to_all_op.all_gather",
    "ipu.horovod.allreduce": "ipu.cross_replica_ops.cross_replica_sum",
    "ipu.horovod.broadcast": "variables as they are: all replicas of IPUStrategy have the same",
    "ipu.ipu_estimator": _KERAS_MODEL,
    "ipu.ipu_multi_worker_strategy": _REPLICAS,
    "ipu.ipu_pipeline_estimator": f"{_KERAS_MODEL}, with keras.ipu.PipelineStage for its stages",
    "ipu.ipu_run_config": _SETTINGS,
    "ipu.ipu_session_run_hooks": "ipu.internal_ops.print_tensor, an IPUOutfeedQueue, or a callback of Keras",
}
