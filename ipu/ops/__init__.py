"""Operations for functions that run on the IPU: one module for each documented module, imported on first access."""

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(
    __name__,
    (
        "all_to_all_op",
        "application_compile_op",
        "control_flow_ops",
        "cross_replica_ops",
        "custom_ops",
        "embedded_runtime",
        "embedding_ops",
        "functional_ops",
        "grad_util_ops",
        "image_ops",
        "internal_ops",
        "math_ops",
        "nn_ops",
        "normalization_ops",
        "pipelining_ops",
        "rand_ops",
        "reduce_scatter_op",
        "replication_ops",
        "rnn_ops",
        "slicing_ops",
        "statistics_ops",
        "summary_ops",
        "within_replica_ops",
    ),
)
