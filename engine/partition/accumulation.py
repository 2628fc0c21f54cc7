"""The number of micro-batches in an update, and the reduction of their gradients."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen

Reduction = Literal["sum", "mean", "running_mean"]


@frozen
class Accumulation:
    """The micro-batches of one update: `steps` in each of `replicas`.

    A replica's gradients are reduced by `reduction`, then summed over replicas. Micro-batch i belongs to replica
    i % replicas. `together` consecutive replicas (a divisor of `replicas`) run their micro-batches in one iteration,
    because batch normalisation takes its statistics over them.
    """

    steps: int = 1
    replicas: int = 1
    reduction: Reduction = "sum"
    together: int = 1

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in one update."""
        return self.steps * self.replicas
