"""How many micro-batches make an update, and how their gradients are reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reduction = Literal["sum", "mean", "running_mean"]


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How many micro-batches make an update: `steps` in each of `replicas`.

    A replica's gradients are reduced by `reduction`, then summed over replicas. Micro-batch i belongs to replica
    i % replicas. `together` replicas, which are consecutive and divide all, make their micro-batches at the same time,
    as statistics of batch normalisations are over them.
    """

    steps: int = 1
    replicas: int = 1
    reduction: Reduction = "sum"
    together: int = 1

    @property
    def micro_batches(self) -> int:
        """The micro-batches of one update."""
        return self.steps * self.replicas
