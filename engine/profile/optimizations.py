"""Options of a cost report for what the chip's compiler merges or omits; results of programs do not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SelectionOrder = Literal["AUTO", "ZIGZAG", "SNAKE", "HOOF"]


@dataclass(frozen=True, slots=True)
class EstimatedOptimizations:
    """Options of `IPUConfig.optimizations` and `IPUConfig.selection_order` (Python API, 18.7), for cost reports.

    Args:
        minimum_remote_bytes: arrays of fewer bytes stay on the tiles when the rest is offloaded.
        merge_infeeds: whether all arrays of an infeed's element share one sync, instead of one for each.
        combine_lookups: whether independent look-ups in one table are planned as one.
        combine_products: whether independent products that share an operand are planned as one.
        replace_dynamic_slices: whether dynamic slices and their updates along one dimension are planned as look-ups of
            rows, which leave the array in place, if that takes fewer cycles than rearranging the whole array.
        reduce_many_bytes: most bytes that a group of independent reductions reads; the group shares its syncs and the
            start-up of its exchanges. 0: no groups.
        cross_replica_sum_bytes: most bytes of gradients that are summed over replicas at once. 0: each by itself.
        syncless_collectives: whether sums over replicas have a sync only at their beginning.
        inter_ipu_copies_bytes: most bytes that come from other IPUs in one copy. 0: one copy for each array.
        selection_order: the order in which shards of a replica are on the IPUs of the ladder.
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
        """Whether an option merges compute sets."""
        return self.merge_infeeds or self.combine_lookups or self.combine_products or self.reduce_many_bytes > 0


NO_OPTIMIZATIONS = EstimatedOptimizations()
