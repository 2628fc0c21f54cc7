"""All program passes for the host only, in the order they run."""

from __future__ import annotations

from collections.abc import Sequence

from engine.host.passes.call_overlap import overlap_calls
from engine.host.passes.column_units import cut_columns
from engine.host.passes.divided_units import divide_units
from engine.host.passes.edge_products import multiply_edges
from engine.host.passes.edge_sums import sum_edges
from engine.host.passes.exception_checks import check_exceptions
from engine.host.passes.exchanged_products import exchange_products
from engine.host.passes.flat_loops import flatten_loops
from engine.host.passes.pooled_windows import pool_unpadded
from engine.host.passes.prefetched_activations import prefetch_activations
from engine.host.passes.prefetched_units import prefetch_units
from engine.host.passes.prefetched_updates import prefetch_updates
from engine.host.passes.prepared_constants import prepare_constants
from engine.host.passes.producer_fusion import fuse_producers
from engine.host.passes.rounded_operands import round_operands
from engine.host.passes.row_sums import fuse_row_sums
from engine.host.passes.rows_in_lanes import put_rows_in_lanes
from engine.host.passes.shared_panels import share_panels
from engine.host.passes.slot_copies import elide_slot_copies
from engine.host.passes.split_products import split_products
from engine.host.passes.touched_rows import skip_untouched_rows
from engine.host.passes.transposed_weights import transpose_weights
from engine.host.passes.unit_fusion import fuse_units
from engine.host.passes.vector_units import fit_units
from engine.host.passes.widened_halves import widen_halves
from engine.program.loop_invariants import hoist_loop_invariants
from engine.program.program import Program
from engine.program.run_passes import Pass
from engine.program.work.convolution import Convolution


def select_convolutions(program: Program) -> Program:
    """The program with compute sets of this processor in place of each convolution.

    A program without convolutions does not import their algorithms.
    """
    if not any(isinstance(each.work, Convolution) for each in program.compute_sets):
        return program
    from engine.host import select

    return select.select_convolutions(program)


HOST_PASSES: tuple[Pass, ...] = (
    widen_halves,
    exchange_products,
    transpose_weights,
    check_exceptions,
    fuse_row_sums,
    select_convolutions,
    fit_units,
    hoist_loop_invariants,  # copies and transforms of kernels, which iterations over micro-batches do not change
    elide_slot_copies,
    sum_edges,
    multiply_edges,
    pool_unpadded,
    round_operands,
    fuse_producers,
    fuse_units,
    split_products,
    cut_columns,
    share_panels,
    prepare_constants,
    prefetch_updates,
    prefetch_activations,
    prefetch_units,
    skip_untouched_rows,
    flatten_loops,
    put_rows_in_lanes,
    divide_units,
    overlap_calls,
)
HIDING: frozenset[Pass] = frozenset(
    {
        *(fuse_row_sums, sum_edges, multiply_edges, pool_unpadded, round_operands),
        *(fuse_units, prepare_constants, flatten_loops),
    }
)
"""Passes after which exceptions would be missed: they change what checked work computes, or put work without checks in
its place."""


def passes_for(program: Program, passes: Sequence[Pass] = HOST_PASSES) -> list[Pass]:
    """The passes that run on a program: those that hide exceptions do not if it detects them."""
    return [each for each in passes if not (program.exception_names and each in HIDING)]
