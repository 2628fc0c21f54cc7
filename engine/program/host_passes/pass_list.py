"""All program passes for the host only, in the order they run."""

from __future__ import annotations

from engine.program.host_passes.call_overlap import overlap_calls
from engine.program.host_passes.column_units import cut_columns
from engine.program.host_passes.depthwise_windows import window_depthwise
from engine.program.host_passes.edge_products import multiply_edges
from engine.program.host_passes.edge_sums import sum_edges
from engine.program.host_passes.finite_tests import compare_exponents
from engine.program.host_passes.flat_loops import flatten_loops
from engine.program.host_passes.pooled_windows import pool_unpadded
from engine.program.host_passes.prefetched_units import prefetch_units
from engine.program.host_passes.prefetched_updates import prefetch_updates
from engine.program.host_passes.prepared_constants import prepare_constants
from engine.program.host_passes.producer_fusion import fuse_producers
from engine.program.host_passes.rounded_operands import round_operands
from engine.program.host_passes.shared_panels import share_panels
from engine.program.host_passes.slot_copies import elide_slot_copies
from engine.program.host_passes.split_products import split_products
from engine.program.host_passes.touched_rows import skip_untouched_rows
from engine.program.host_passes.unit_fusion import fuse_units
from engine.program.host_passes.widened_operands import widen_operands
from engine.program.host_passes.winograd import hoist_transformed_kernels, use_winograd
from engine.program.host_passes.winograd_padding import read_unpadded
from engine.program.host_passes.winograd_wide import hoist_wide_kernels, use_wide_winograd
from engine.program.run_passes import Pass

HOST_PASSES: tuple[Pass, ...] = (
    elide_slot_copies,
    sum_edges,
    multiply_edges,
    use_winograd,
    use_wide_winograd,
    read_unpadded,
    hoist_transformed_kernels,
    hoist_wide_kernels,
    window_depthwise,
    pool_unpadded,
    round_operands,
    widen_operands,
    fuse_producers,
    fuse_units,
    split_products,
    cut_columns,
    share_panels,
    prepare_constants,
    prefetch_updates,
    prefetch_units,
    skip_untouched_rows,
    compare_exponents,
    flatten_loops,
    overlap_calls,
)
