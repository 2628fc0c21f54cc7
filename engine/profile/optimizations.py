"""What the chip's compiler may merge or leave out: options of an account that do not change what a program computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SelectionOrder = Literal["AUTO", "ZIGZAG", "SNAKE", "HOOF"]


@dataclass(frozen=True, slots=True)
class EstimatedOptimizations:
    """Options of `IPUConfig.optimizations` and `IPUConfig.selection_order` (Python API, 18.7), as an account has them.

    Args:
        minimum_remote_bytes: what has fewer bytes stays on the tiles when the rest is offloaded.
        merge_infeeds: one sync for all arrays of an infeed's element, in place of one for each.
        combine_lookups: look-ups in one table that do not depend on each other are planned as one.
        combine_products: products that share an operand, and do not depend on each other, are planned as one.
        replace_dynamic_slices: dynamic slices and their updates along one dimension are planned as look-ups of rows,
            the array staying where it is, if that takes fewer cycles than to lay the whole array out anew.
        reduce_many_bytes: reductions that read so many bytes together, and do not depend on each other, share
            their syncs and the start-up of their exchanges.
        cross_replica_sum_bytes: gradients of so many bytes together, at most, are summed over replicas at once; 0: each
            by itself.
        syncless_collectives: whether sums over replicas have a sync at their beginning only.
        inter_ipu_copies_bytes: so many bytes, at most, come from other IPUs in one copy; 0: each array in its own.
        selection_order: which IPU of the ladder a shard of a replica is on.
    """

    minimum_remote_bytes: int = 128
    merge_infeeds: bool = False
    combine_lookups: bool = False
    combine_products: bool = False
    replace_dynamic_slices: bool = True
    reduce_many_bytes: int = 0
    cross_replica_sum_bytes: int = 0
    syncless_collectives: bool = False
    inter_ipu_copies_bytes: int = 0
    selection_order: SelectionOrder = "AUTO"

    @property
    def merges(self) -> bool:
        """Whether compute sets are to be merged at all."""
        return self.merge_infeeds or self.combine_lookups or self.combine_products or self.reduce_many_bytes > 0


NO_OPTIMIZATIONS = EstimatedOptimizations()
