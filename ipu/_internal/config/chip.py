"""The chip of the present configuration, and the library options for a cost report."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from engine.errors import ConfigurationError
from engine.target import Target, target
from ipu._internal.config.engine_flags import stack_bytes
from ipu._internal.config.system import current_system, on_ipu_model

if TYPE_CHECKING:
    from engine.profile.options import Assumptions, EstimatedOptimizations

SYNCLESS = "useSynclessCollectives"


def configured_target() -> Target:
    """The chip of the present configuration: a Mk2 unless it has the version of another device or IPU model."""
    config = current_system().config
    settings = config.ipu_model
    if not on_ipu_model():
        return target(config.device_connection.version or "ipu2")
    return target(settings.version, settings.tiles_per_ipu or None)


def configured_assumptions() -> Assumptions:
    """The library options and I/O tiles of the present configuration.

    Raises ConfigurationError for an option of matmuls, convolutions or slices, or a flag of the engine, that the
    cost report cannot parse.
    """
    # The cost report imports codelets, which load Numba: on demand only.
    from engine.profile.options import Assumptions

    system = current_system()
    settings = system.config
    return Assumptions.from_options(
        settings.matmuls.poplar_options,
        settings.convolutions.poplar_options,
        settings.slices.poplar_options,
        triangular_solve_block=settings.optimizations.triangular_solve_expander_block_size or None,
        cholesky_block=settings.optimizations.cholesky_block_size or None,
        io_tiles=system.io_tiles,
        io_tile_memory_proportion=settings.io_tiles.available_memory_proportion,
        overlapped_io=bool(system.io_tiles) and settings.io_tiles.place_ops_on_io_tiles,
        stack_bytes=stack_bytes(),
        code_bytes=settings.ipu_model.compile_ipu_code or not on_ipu_model(),
        optimizations=configured_optimizations(),
        rearranged_on_host=system.config.experimental.always_rearrange_copies_on_the_host,
    )


def configured_optimizations() -> EstimatedOptimizations:
    """The chip compiler's merges in the present configuration, and the order of shards."""
    from engine.profile.options import EstimatedOptimizations, SelectionOrder

    settings, order = current_system().config.optimizations, current_system().config.selection_order
    return EstimatedOptimizations(
        minimum_remote_bytes=settings.minimum_remote_tensor_size,
        merge_infeeds=settings.merge_infeed_io_copies,
        combine_lookups=settings.combine_embedding_lookups,
        combine_products=settings.combine_matmuls,
        replace_dynamic_slices=settings.enable_dynamic_slice_replacement,
        reduce_many_bytes=settings.maximum_reduce_many_buffer_size,
        cross_replica_sum_bytes=settings.maximum_cross_replica_sum_buffer_size,
        syncless_collectives=_is_syncless(),
        inter_ipu_copies_bytes=settings.maximum_inter_ipu_copies_buffer_size,
        selection_order=cast(SelectionOrder, order.name),
    )


def _is_syncless() -> bool:
    """Whether useSynclessCollectives of gcl_poplar_options is "true"; "auto" and "hybrid" count as "false"."""
    given = current_system().config.gcl_poplar_options.get(SYNCLESS, "auto")
    text = str(given).lower()
    if text not in ("true", "false", "auto", "hybrid"):
        raise ConfigurationError(
            f"Expected the GCL flag {SYNCLESS} to be 'true', 'false', 'auto' or 'hybrid'. Received: {given!r}. "
            "Use 'auto', or leave it out."
        )
    return text == "true"
