"""Names that only earlier or later releases have, and their replacements."""

OTHER_RELEASES = {
    "ipu.autoshard.ipu_autoshard": "ipu.autoshard.automatic_sharding, or ipu.scopes.ipu_shard",
    "ipu.autoshard_cnn": "ipu.autoshard.automatic_sharding, or ipu.pipelining_ops.pipeline",
    "ipu.dataset_extractor": "ipu.utils.export_dataset_to_file",
    "ipu.experimental": "tf.cast to float16 or bfloat16",
    "ipu.f8_ops": "float16",
    "ipu.gradient_accumulation_optimizer.GradientAccumulationOptimizerV1": "GradientAccumulationOptimizerV2",
    "ipu.internal_ops.block_recompute": "ipu.pipelining_ops.recomputation_checkpoint",
    "ipu.internal_ops.fifo": "a tf.Variable of the values to delay, or ipu.pipelining_ops.pipeline",
    "ipu.internal_ops.recompute": "IPUConfig.allow_recompute",
    "ipu.internal_ops.remap": "tf.identity: data have one layout",
    "ipu.internal_ops.remap_deduce": "tf.identity: data have one layout",
    "ipu.keras.ReplicatedMetricReductionMethod": "nothing in its place: metrics are of all replicas and steps",
    "ipu.keras.optimizers.ALSGradientAccumulationOptimizer": "ALSOptimizer, and the model's "
    "set_gradient_accumulation_options()",
    "ipu.keras.layers.EffectiveTransformer": "keras.layers.MultiHeadAttention and its attention_mask",
    "ipu.keras.model": "tensorflow.keras.Model",
    "ipu.keras.pipeline": "tensorflow.keras.Sequential and its set_pipeline_stage_assignment()",
    "ipu.keras.optimizers.CrossReplicaOptimizer": "Keras' optimizer itself: gradients are summed over replicas",
    "ipu.keras.optimizers.GradientAccumulationOptimizer": "the model's set_gradient_accumulation_options()",
    "ipu.keras.optimizers.IpuOptimizer": "Keras' optimizer itself",
    "ipu.keras.optimizers.AutomaticLossScalingOptimizer": "keras.ipu.optimizers.ALSOptimizer",
    "ipu.keras_extensions": "IPUStrategy(enable_keras_extensions=...)",
    "ipu.optimizers.AutomaticLossScalingOptimizer": "keras.mixed_precision.LossScaleOptimizer",
    "ipu.op_util": "ipu.optimizers.GradientAccumulationOptimizerV2, or ipu.pipelining_ops.pipeline",
    "ipu.pipelining_ops._ALL_DEVICES": "the number of one IPU for each stage in device_mapping",
    "ipu.popfloat_ops": "tf.cast to float16 or bfloat16",
    "ipu.summary_ops.get_ipu_reports": "ipu.profile(model)",
    "ipu.utils.extract_graph_reports": "ipu.utils.extract_compile_reports, or ipu.profile(model)",
    "ipu.sharding_utils": "ipu.scopes.ipu_shard, or pipeline stages",
    "ipu.test_utils": "ipu.profile(model) for reports; leave its decorators out",
}
_PLUGIN = "tensorflow.compiler.plugin.poplar"
OF_PLUGIN = {
    f"{_PLUGIN}.ops.gen_functional_ops": "ipu.outlined_function, ipu.nn_ops.multi_conv, or ipu.pipelining_ops.pipeline",
    f"{_PLUGIN}.ops.gen_popfloat_ops": "tf.cast to float16 or bfloat16",
    f"{_PLUGIN}.ops.gen_sendrecv_ops": "ipu.scopes.outside_compilation_scope, which sends tensors to the host and back",
    f"{_PLUGIN}.tests": "ipu.profile(model) for reports; leave decorators of test_utils out",
}
OF_TENSORFLOW_1 = {
    "tensorflow.contrib": "tf.compat.v1 or Keras, or `python -m ipu.run --tf1`, which supplies a part of it",
    "tensorflow.contrib.ipu": "`from tensorflow.python import ipu`; `python -m ipu.run --tf1` runs programs unchanged",
}
OF_GRAPHCORE = {
    **dict.fromkeys(("gc_info", "gcipuinfo"), "`python -m ipu`, which shows this machine"),
    **dict.fromkeys(("gcprofile", "libpva", "pva"), "ipu.profile(model), which writes a report"),
    **dict.fromkeys(("libpvti", "pvti"), "ipu.profile(model), or tf.profiler for what the host does"),
    **dict.fromkeys(
        ("popart", "poplar", "poptorch", "popxl"), "TensorFlow and Keras: `from tensorflow.python import ipu`"
    ),
    "popdist.poptorch": "popdist.tensorflow, or ipu.distributed",
    "poprun": "`python -m ipu.run --processes N program.py`, which sets what popdist reads",
}
OF_HOROVOD = {
    "horovod": "`from tensorflow.python.ipu import horovod as hvd`, in processes of `python -m ipu.run --processes N`"
}
