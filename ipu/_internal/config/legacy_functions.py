"""Functions with which programs older than IPUConfig build a configuration; each updates and returns `opts`."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import ConfigurationError
from ipu._internal.config.deprecation import deprecated
from ipu._internal.config.enumerations import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipu._internal.config.legacy import IpuOptions, VerificationOptions
from ipu._internal.config.library_flags import (
    CONVOLUTION,
    ENGINE,
    GCL,
    MATMUL,
    POOLING,
    REPORT,
    LibraryFlags,
    check_flags,
)

use_ipu_config = deprecated("use an ipu.config.IPUConfig instance instead.")


def assign(category: object, **values: object) -> None:
    """Sets attributes of one category of a configuration."""
    for name, value in values.items():
        setattr(category, name, value)


def flags(name: str, given: dict | None, library: LibraryFlags) -> dict:
    """A copy of a dictionary of option flags; raises ConfigurationError for one that the library lacks."""
    check_flags(name, given or {}, library)
    return dict(given or {})


@use_ipu_config
def create_ipu_config(
    profiling: bool = False,
    enable_ipu_events: bool = False,
    use_poplar_text_report: bool = False,
    use_poplar_cbor_report: bool = False,
    profile_execution: bool | ExecutionProfileType | None = None,
    enable_poplar_serialized_graph: bool = False,
    report_every_nth_execution: int = 0,
    max_report_size: int = 0x10000000,
    report_directory: str = "",
    scheduler_selection: SchedulingAlgorithm = SchedulingAlgorithm.CHOOSE_BEST,
    always_rearrange_copies_on_the_host: bool = False,
    merge_infeed_io_copies: bool = False,
    disable_graph_outlining: bool = False,
    retain_control_dependencies: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_scheduler_lookahead_depth: int = 5,
    max_scheduler_search_space_size: int = 64,
    prefetch_data_streams: bool = True,
    selection_order: SelectionOrder = SelectionOrder.AUTO,
    enable_experimental_remote_buffer_embedding: bool = False,
) -> IpuOptions:
    """Create an empty IPU session configuration structure.

    Raises:
        ValueError: `profiling` together with `enable_ipu_events`, or `profile_execution` without `profiling`.
    """
    if profiling and enable_ipu_events:
        raise ConfigurationError("Expected one of profiling and enable_ipu_events. Received both. Drop one.")
    if not isinstance(profile_execution, ExecutionProfileType):
        profile_execution = ExecutionProfileType(int(bool(profile_execution)))
    if profile_execution is not ExecutionProfileType.NO_PROFILE and not profiling:
        raise ConfigurationError(
            f"Expected profiling=True with profile_execution. Received: profile_execution="
            f"{profile_execution}, profiling=False."
        )
    opts = IpuOptions()
    assign(
        opts.profiling,
        enable_compilation_trace=profiling,
        enable_ipu_trace_events=profiling or enable_ipu_events,
        enable_poplar_reports_text=use_poplar_text_report,
        enable_poplar_reports_cbor=use_poplar_cbor_report,
        execution_trace_type=profile_execution,
        enable_poplar_graph=enable_poplar_serialized_graph,
        report_every_nth_execution=report_every_nth_execution,
        max_report_size=max_report_size,
        report_directory=report_directory,
    )
    assign(
        opts.experimental,
        always_rearrange_copies_on_the_host=always_rearrange_copies_on_the_host,
        enable_remote_buffer_embedding=enable_experimental_remote_buffer_embedding,
    )
    assign(
        opts.optimizations,
        merge_infeed_io_copies=merge_infeed_io_copies,
        enable_graph_outlining=not disable_graph_outlining,
        maximum_cross_replica_sum_buffer_size=max_cross_replica_sum_buffer_size,
        maximum_inter_ipu_copies_buffer_size=max_inter_ipu_copies_buffer_size,
        prefetch_data_streams=prefetch_data_streams,
        merge_remote_buffers=MergeRemoteBuffersBehaviour.NO_MERGING,
    )
    assign(
        opts.scheduling,
        algorithm=scheduler_selection,
        maximum_scheduler_lookahead_depth=max_scheduler_lookahead_depth,
        maximum_scheduler_search_space_size=max_scheduler_search_space_size,
    )
    assign(opts, retain_control_dependencies=retain_control_dependencies, selection_order=selection_order)
    return opts


def require_no_devices(opts: IpuOptions) -> None:
    """Raises ConfigurationError if devices have been selected already."""
    if opts.auto_select_ipus or opts.select_ipus:
        raise ConfigurationError(
            "Expected options without devices. Received options in which IPUs have been selected already. "
            "Call only one of auto_select_ipus and select_ipus, once."
        )


@use_ipu_config
def auto_select_ipus(opts: IpuOptions, num_ipus: int | Sequence[int]) -> IpuOptions:
    """Configure the IPUs to be used by the session, by the number of IPUs of each TensorFlow device."""
    require_no_devices(opts)
    opts.auto_select_ipus = [num_ipus] if isinstance(num_ipus, int) else list(num_ipus)
    return opts


@use_ipu_config
def select_ipus(opts: IpuOptions, indices: Sequence[int]) -> IpuOptions:
    """Configure the IPUs to be used by the session, by the configuration index of each TensorFlow device.

    Raises:
        ValueError: devices have been selected already, or an index is repeated.
    """
    require_no_devices(opts)
    if len(set(indices)) != len(indices):
        raise ConfigurationError(
            f"Expected each index once. Received: {list(indices)}. Nearest: {list(dict.fromkeys(indices))}."
        )
    opts.select_ipus = list(indices)
    return opts


@use_ipu_config
def set_compilation_options(opts: IpuOptions, compilation_options: dict | None = None) -> IpuOptions:
    """Set the IPU compilation options for the session. Raises ValueError for a flag that does not exist."""
    opts.compilation_poplar_options = flags("compilation_options", compilation_options, ENGINE)
    return opts


@use_ipu_config
def set_convolution_options(opts: IpuOptions, convolution_options: dict | None = None) -> IpuOptions:
    """Set the IPU convolution options for the session. Raises ValueError for a flag that does not exist."""
    opts.convolutions.poplar_options = flags("convolution_options", convolution_options, CONVOLUTION)
    return opts


@use_ipu_config
def set_matmul_options(
    opts: IpuOptions, matmul_options: dict | None = None, clear_pass_type: bool = False
) -> IpuOptions:
    """Set the IPU matrix multiplication options for the session. Raises ValueError for an unknown flag."""
    assign(
        opts.matmuls, poplar_options=flags("matmul_options", matmul_options, MATMUL), clear_pass_type=clear_pass_type
    )
    return opts


@use_ipu_config
def set_pooling_options(opts: IpuOptions, pooling_options: dict | None = None) -> IpuOptions:
    """Set the IPU pooling compilation options for the session. Raises ValueError for a flag that does not exist."""
    opts.pooling.poplar_options = flags("pooling_options", pooling_options, POOLING)
    return opts


@use_ipu_config
def set_gcl_options(opts: IpuOptions, gcl_options: dict | None = None) -> IpuOptions:
    """Set the IPU options for the Graphcore Communication Library. Raises ValueError for an unknown flag."""
    opts.gcl_poplar_options = flags("gcl_options", gcl_options, GCL)
    return opts


@use_ipu_config
def set_report_options(
    opts: IpuOptions, graph_options: dict | None = None, execution_options: dict | None = None
) -> IpuOptions:
    """Set the options used to influence graph and execution report generation.

    Raises:
        ValueError: a flag that reports do not have.
    """
    assign(
        opts.profiling,
        graph_options=flags("graph_options", graph_options, REPORT),
        execution_options=flags("execution_options", execution_options, REPORT),
    )
    return opts


@use_ipu_config
def set_experimental_multi_replica_distribution_options(
    opts: IpuOptions, process_count: int, process_index: int
) -> IpuOptions:
    """Configure run-time parallel processes to execute the same program."""
    assign(opts.experimental.multi_replica_distribution, process_count=process_count, process_index=process_index)
    return opts


@use_ipu_config
def set_floating_point_behaviour_options(
    opts: IpuOptions,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = True,
    nanoo: bool = True,
) -> IpuOptions:
    """Set the IPU floating point control behaviour bits; each is on unless it is set to False."""
    assign(opts.floating_point_behaviour, inv=inv, div0=div0, oflo=oflo, esr=esr, nanoo=nanoo)
    return opts


@use_ipu_config
def set_io_tile_options(
    opts: IpuOptions,
    num_io_tiles: int,
    place_ops_on_io_tiles: bool | None = None,
    io_tile_available_memory_proportion: float = 0.9,
) -> IpuOptions:
    """Set the number of tiles reserved for I/O per IPU; None leaves `place_ops_on_io_tiles` as it is."""
    if place_ops_on_io_tiles is not None:
        opts.io_tiles.place_ops_on_io_tiles = place_ops_on_io_tiles
    assign(
        opts.io_tiles,
        num_io_tiles=num_io_tiles,
        available_memory_proportion=io_tile_available_memory_proportion,
    )
    return opts


@use_ipu_config
def set_ipu_connection_type(
    opts: IpuOptions,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str | int = "",
    enable_remote_buffers: bool = False,
) -> IpuOptions:
    """Configure when to attach to the device; version 2 means "ipu2"."""
    version = f"ipu{ipu_version}" if isinstance(ipu_version, int) else ipu_version
    assign(
        opts.device_connection,
        type=connection_type,
        version=version,
        enable_remote_buffers=enable_remote_buffers,
    )
    return opts


@use_ipu_config
def set_ipu_model_options(
    opts: IpuOptions,
    compile_ipu_code: bool = True,
    tiles_per_ipu: int | None = None,
    ipu_model_version: str = "ipu2",
) -> IpuOptions:
    """Set the IPU Model options; None stands for the standard number of tiles."""
    assign(
        opts.ipu_model,
        compile_ipu_code=compile_ipu_code,
        tiles_per_ipu=tiles_per_ipu or 0,
        version=ipu_model_version,
    )
    return opts


@use_ipu_config
def set_norm_options(
    opts: IpuOptions,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int = 1,
) -> IpuOptions:
    """Set the IPU options related to normalisation operations."""
    opts.norms.use_stable_statistics = use_stable_statistics
    opts.norms.experimental.distributed_batch_norm_replica_group_size = (
        experimental_distributed_batch_norm_replica_group_size
    )
    return opts


@use_ipu_config
def set_optimization_options(
    opts: IpuOptions,
    combine_embedding_lookups: bool = False,
    combine_matmuls: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_reduce_scatter_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_send_recv_cluster_size: int = 0,
    minimum_remote_tensor_size: int = 128,
    merge_remote_buffers: MergeRemoteBuffersBehaviour = MergeRemoteBuffersBehaviour.NO_MERGING,
    gather_simplifier: bool = True,
    triangular_solve_expander_block_size: int = 0,
    cholesky_block_size: int = 0,
    enable_fast_math: bool = False,
) -> IpuOptions:
    """Set the IPU options related to performance / optimizations."""
    assign(
        opts.optimizations,
        combine_embedding_lookups=combine_embedding_lookups,
        combine_matmuls=combine_matmuls,
        maximum_cross_replica_sum_buffer_size=max_cross_replica_sum_buffer_size,
        maximum_reduce_scatter_buffer_size=max_reduce_scatter_buffer_size,
        maximum_inter_ipu_copies_buffer_size=max_inter_ipu_copies_buffer_size,
        maximum_send_recv_cluster_size=max_send_recv_cluster_size,
        minimum_remote_tensor_size=minimum_remote_tensor_size,
        merge_remote_buffers=merge_remote_buffers,
        enable_gather_simplifier=gather_simplifier,
        triangular_solve_expander_block_size=triangular_solve_expander_block_size,
        cholesky_block_size=cholesky_block_size,
    )
    opts.optimizations.math.fast = enable_fast_math
    return opts


@use_ipu_config
def set_recomputation_options(opts: IpuOptions, allow_recompute: bool = True) -> IpuOptions:
    """Set re-computation options."""
    opts.allow_recompute = allow_recompute
    return opts


@use_ipu_config
def set_serialization_options(opts: IpuOptions, output_folder: str = "") -> IpuOptions:
    """Enable / disable the serialization to disk of the compiled executables."""
    opts.serialization_output_folder = output_folder
    return opts


@use_ipu_config
def set_transfer_options(opts: IpuOptions, use_verified_transfers: bool = False) -> IpuOptions:
    """Set the IPU options related to data transfers."""
    opts.use_verified_transfers = use_verified_transfers
    return opts


@use_ipu_config
def set_verification_options(opts: IpuOptions, verification_options: VerificationOptions) -> IpuOptions:
    """Set the pairs of key and id for each type of data, for verified transfers."""
    opts.verification_options = verification_options.to_dict()
    return opts
