"""The categories of a configuration that control compilation: op families, optimizations, scheduling."""

from __future__ import annotations

from ipu._internal.config.category import Category, option
from ipu._internal.config.enumerations import MergeRemoteBuffersBehaviour, SchedulingAlgorithm

MEMORY_PROPORTION = (
    " Of note is 'availableMemoryProportion' (between 0 and 1.0), the proportion of tile memory made "
    "available as temporary memory: less of it generally takes more cycles."
)


class Convolutions(Category):
    """Options that affect convolutions."""

    poplar_options: dict = option(
        {}, "PopLibs convolution options, applied to every convolution of the program." + MEMORY_PROPORTION
    )


class MatMuls(Category):
    """Options that affect matrix multiplications."""

    clear_pass_type: bool = option(
        False, "Do not tell PopLibs the pass to which a multiplication belongs; can save memory in large models."
    )
    poplar_options: dict = option(
        {},
        "PopLibs matrix multiplication options, applied to every one of the program." + MEMORY_PROPORTION,
    )


class Slices(Category):
    """Options that affect slices and embedding look-ups."""

    poplar_options: dict = option(
        {}, "PopLibs embedding options, applied to every slice operation of the program." + MEMORY_PROPORTION
    )


class Pooling(Category):
    """Options that affect pooling operations."""

    poplar_options: dict = option({}, "PopLibs pooling options, applied to every pooling of the program.")


class NormsExperimental(Category):
    """Experimental options for normalizations, which may change or go without notice."""

    distributed_batch_norm_replica_group_size: int = option(
        1,
        "Over how many replicas batch statistics are aggregated while training. With four replicas and a "
        "size of two, replicas 0 and 1 share theirs, and so do 2 and 3. "
        "Not to be used with pipelining or I/O tiles.",
    )


class Norms(Category):
    """Options that affect normalizations: fused batch, group, layer and instance norm."""

    use_stable_statistics: bool = option(
        False, "Subtract the mean from the activations before the variance is computed; slower."
    )
    experimental: NormsExperimental


class Math(Category):
    """Optimizations of mathematical operations."""

    fast: bool = option(
        False,
        "Allow reassociations and transformations with no guarantee of accuracy: wrong for programs that "
        "depend on exact IEEE arithmetic, possibly faster for others.",
    )
    dot_strength: bool = option(True, "Turn matrix multiplications into cheaper operations where that is possible.")


class Optimizations(Category):
    """Optimizations made while a program is compiled."""

    math: Math
    prefetch_data_streams: bool = option(True, "Overlap the host's preparation of data with execution.")
    combine_embedding_lookups: bool = option(
        False, "Fuse embedding look-ups on one tensor; may be faster and take more memory."
    )
    combine_matmuls: bool = option(False, "Fuse matrix multiplications that share weights or input.")
    enable_graph_outlining: bool = option(
        True,
        "Use code again for operations that differ in their input tensors only: less code, more exchange. "
        "Turn it off if speed matters more than memory.",
    )
    merge_infeed_io_copies: bool = option(
        False, "Merge the copies of streamed inputs into one larger copy; takes more live memory."
    )
    maximum_cross_replica_sum_buffer_size: int = option(
        0,
        "Bytes that may wait before a cross-replica sum is scheduled; 0 (default) schedules at once. More "
        "gives larger temporary buffers, but fewer sums and less control code.",
    )
    maximum_reduce_scatter_buffer_size: int = option(0, "Bytes that may wait before a reduce-scatter is scheduled.")
    maximum_inter_ipu_copies_buffer_size: int = option(
        0, "Bytes that may wait before a copy between IPUs is scheduled."
    )
    maximum_send_recv_cluster_size: int = option(
        0, "Bytes that may wait before a cluster of sends to and receives from the host is scheduled."
    )
    maximum_reduce_many_buffer_size: int = option(0, "Bytes that may wait before reductions are scheduled as one.")
    maximum_all_gather_buffer_size: int = option(0, "Bytes that may wait before an all-gather is scheduled.")
    minimum_remote_tensor_size: int = option(128, "Bytes a tensor must have to be considered for remote memory.")
    merge_remote_buffers: MergeRemoteBuffersBehaviour = option(
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
        "Whether to merge compatible remote buffers, so that computations differing in them share code.",
    )
    enable_gather_simplifier: bool = option(True, "Optimize embedding look-ups more aggressively.")
    triangular_solve_expander_block_size: int = option(
        0,
        "Block size B of the triangular solver: each block is processed on one tile, in log2(N/B) unrolled "
        "iterations for rank N. Small blocks are more parallel, large ones take less control code; 0 "
        "(default) leaves the choice to the compiler.",
    )
    cholesky_block_size: int = option(
        0,
        "Block size B of the Cholesky factorizer: each block is processed on one tile, in N/B unrolled "
        "iterations for rank N; 0 (default) leaves the choice to the compiler.",
    )
    enable_fast_math: bool = option(
        False, "Same as optimizations.math.fast.", deprecated="use optimizations.math.fast instead."
    )
    enable_dynamic_slice_replacement: bool = option(
        True, "Replace dynamic slices by embedding look-ups where that is possible."
    )


class Scheduling(Category):
    """The order of the operations of a compiled program."""

    algorithm: SchedulingAlgorithm = option(
        SchedulingAlgorithm.CHOOSE_BEST,
        "The scheduling algorithm. CHOOSE_BEST (default) creates several schedules and keeps the one with "
        "the lowest predicted liveness; any other is used as it is.",
    )
    maximum_scheduler_lookahead_depth: int = option(
        5, "How far LOOK_AHEAD looks beyond a decision; the search grows very quickly with it."
    )
    maximum_scheduler_search_space_size: int = option(
        64, "The largest search space of LOOK_AHEAD, which makes it end in reasonable time."
    )
