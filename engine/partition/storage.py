"""Storage of a pipeline's data on a chip: on the tiles, in streaming memory, divided among replicas.

Options of Graphcore's `pipeline()` choose it. They change where the cost report counts a pipeline's data and which
transfers its schedule has; the engine executes the same program with all of them.
"""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Storage:
    """The options that move data; None, with which TensorFlow for IPUs decides itself, leaves data on the tiles.

    Optimizer state is divided only where it is offloaded, and weights are offloaded only where they are divided.
    """

    offload_activations: bool | None = None
    offload_gradient_accumulation_buffers: bool | None = None
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool | None = None
    offload_weights: bool | None = None
    replicated_weight_sharding: bool | None = None

    @property
    def offloads_optimizer_state(self) -> bool:
        """Whether variables that only the update uses are in streaming memory; dividing them needs that."""
        return bool(self.offload_weight_update_variables or self.replicated_optimizer_state_sharding)

    @property
    def offloads_weights(self) -> bool:
        """Whether weights are in streaming memory."""
        return bool(self.offload_weights and self.replicated_weight_sharding)


def share(size: int, replicas: int, divided: bool | None) -> int:
    """The bytes that one replica keeps of `size`, rounded up if it is divided among all replicas."""
    return -(-size // replicas) if divided else size
