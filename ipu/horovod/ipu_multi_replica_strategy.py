"""IPUMultiReplicaStrategy, as earlier releases call PopDistStrategy."""

from __future__ import annotations

from ipu._internal.names.namespace import public_names
from ipu.distributed.popdist_strategy import PopDistExtendedV1, PopDistStrategy

__all__ = ["IPUMultiReplicaExtended", "IPUMultiReplicaStrategy"]
__getattr__, __dir__ = public_names(__name__, __all__)

IPUMultiReplicaExtended = PopDistExtendedV1


class IPUMultiReplicaStrategy(PopDistStrategy):
    """Reductions over the replicas of all processes (Python API, 18.10); see PopDistStrategy.

    Args:
        ipu_device: the TensorFlow name of the IPU device.
        add_ipu_cross_replica_reductions: whether optimizers on the IPU sum gradients over replicas.
        enable_dataset_iterators: whether `iter(dataset)` inside the scope creates an infeed.
        enable_keras_extensions: whether Keras models created inside the scope run on the IPU.
    """
