"""Effects of each option of a configuration: on results, the chip's cost report, the host, or none, and why.

docs/options.md prints this table. Tests check that it is complete, and that each row with an effect has a test
that shows the effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["results", "cost report", "host", "none"]
KINDS: tuple[Kind, ...] = ("results", "cost report", "host", "none")
"""Kinds of effects: on computed numbers; on bytes, cycles and fit (engine/profile); on processes, files and time;
none.
"""
PREDICATES: Mapping[Kind, str] = {
    "results": "acts on results",
    "cost report": "acts on the cost report",
    "host": "acts on the host",
    "none": "has no effect",
}


@dataclass(frozen=True)
class Effect:
    """The effect of one option: where it acts, and how. For "none" the text is the reason."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        """A predicate, whose subject is the option."""
        return f"{PREDICATES[self.kind]}: {self.text.replace('below', 'in docs/options.md')}"


def results(text: str) -> Effect:
    return Effect("results", text)


def cost(text: str) -> Effect:
    return Effect("cost report", text)


def host(text: str) -> Effect:
    return Effect("host", text)


def none(reason: str) -> Effect:
    return Effect("none", reason)


NO_COLLECTIVES = "the cost report counts the sum of gradients over replicas, and no other collective"
NO_REPORTS = "there are no Poplar reports; events, ipu.profile and ipu.ProfileReport have reports of this project"
NO_VERIFICATION = "data reach the device within one process, where nothing is to be verified"

EFFECTS: Mapping[str, Effect] = {
    "allow_recompute": cost(
        "backward parts of pipelines compute their stage's activations again; in other steps "
        "activations between checkpoints, or else between cuts where few bytes cross, are dropped and recomputed; "
        "results stay the same"
    ),
    "selection_order": cost("HOOF puts other shards on partner IPUs; the ladder's links make all other orders alike"),
    "serialization_output_folder": host("compiled programs are written there as .poplar_exec files"),
    "compilation_poplar_options": cost("see the flags of the engine below"),
    "gcl_poplar_options": cost("see the flags of collectives below"),
    "auto_select_ipus": results(
        "one replica for each IPU, or for each group of IPUs that holds a pipeline or a sharded model"
    ),
    "select_ipus": results("like auto_select_ipus, with the number of IPUs behind each Id"),
    "convolutions.poplar_options": cost("see the flags of convolutions below"),
    "device_connection.type": host("PRE_COMPILE compiles and returns zeros; NEVER refuses to run"),
    "device_connection.version": cost("the chip; with the IPU model it is that of ipu_model.version"),
    "device_connection.enable_remote_buffers": cost(
        "without it nothing is offloaded, unless device_connection.type is ALWAYS"
    ),
    "experimental.always_rearrange_copies_on_the_host": cost(
        "without it, the tiles hold buffers to rearrange the variables that come from the host"
    ),
    "experimental.enable_remote_buffer_embedding": none(
        "all replicas share the one table of a HostEmbedding in the host's memory"
    ),
    "experimental.enable_prng_stability": none(
        "random numbers follow from the seed and the program, whatever the order of its instructions"
    ),
    "experimental.multi_replica_distribution.process_index": results("the number of this process among those of a run"),
    "experimental.multi_replica_distribution.process_count": results(
        "collectives and training are over the replicas of all processes of the run; another number is refused"
    ),
    "floating_point_behaviour.inv": results("an invalid operation ends the call with FloatingPointException"),
    "floating_point_behaviour.div0": results("a division by zero ends the call with FloatingPointException"),
    "floating_point_behaviour.oflo": results("an overflow ends the call with FloatingPointException"),
    "floating_point_behaviour.esr": results("16-bit floats are rounded stochastically"),
    "floating_point_behaviour.nanoo": results("a 16-bit float that overflows becomes NaN"),
    "floating_point_behaviour.set_all": results("turns on inv, div0, oflo, esr and nanoo"),
    "io_tiles.num_io_tiles": cost("the number of tiles that hold stream buffers and compute nothing"),
    "io_tiles.place_ops_on_io_tiles": cost("transfers from and to the host run beside compute"),
    "io_tiles.available_memory_proportion": cost("the part of an I/O tile that may hold stream data"),
    "ipu_model.compile_ipu_code": cost("whether code counts as memory; only with the IPU model"),
    "ipu_model.tiles_per_ipu": cost("tiles of the chip; only with the IPU model"),
    "ipu_model.version": cost("the chip; only with the IPU model"),
    "matmuls.clear_pass_type": none("plans do not depend on the pass to which a multiplication belongs"),
    "matmuls.poplar_options": cost("see the flags of matrix multiplications below"),
    "norms.use_stable_statistics": none(
        "batch norms always subtract the mean before the variance is computed, as with True: as exact as TensorFlow's"
    ),
    "norms.experimental.distributed_batch_norm_replica_group_size": results(
        "the number of replicas that share batch statistics in training"
    ),
    "optimizations.prefetch_data_streams": host(
        "False: infeed queues and Python iterators in fit are read when the program waits for data, not ahead"
    ),
    "optimizations.combine_embedding_lookups": cost(
        "look-ups in one table that do not depend on each other are planned as one"
    ),
    "optimizations.combine_matmuls": cost("multiplications that share an operand are planned as one"),
    "optimizations.enable_graph_outlining": none(
        "the cost report counts a codelet once however often it is used, and the exchange code of each compute set"
    ),
    "optimizations.merge_infeed_io_copies": cost("the arrays of an infeed's element share a sync"),
    "optimizations.maximum_cross_replica_sum_buffer_size": cost(
        "the bytes of gradients that share a sum over replicas"
    ),
    "optimizations.maximum_reduce_scatter_buffer_size": none(NO_COLLECTIVES),
    "optimizations.maximum_inter_ipu_copies_buffer_size": cost(
        "the bytes of activations that share a copy between stages"
    ),
    "optimizations.maximum_send_recv_cluster_size": none("only queues send and receive"),
    "optimizations.maximum_reduce_many_buffer_size": cost("the bytes that reductions with common syncs read together"),
    "optimizations.maximum_all_gather_buffer_size": none(NO_COLLECTIVES),
    "optimizations.minimum_remote_tensor_size": cost("smaller tensors, and single numbers, are not offloaded"),
    "optimizations.merge_remote_buffers": none("the cost report counts no code for remote buffers"),
    "optimizations.enable_gather_simplifier": none("gathers of whole rows are look-ups in any case"),
    "optimizations.triangular_solve_expander_block_size": cost("the block that one tile processes"),
    "optimizations.cholesky_block_size": cost("the block that one tile processes"),
    "optimizations.enable_fast_math": results("another name of optimizations.math.fast"),
    "optimizations.enable_dynamic_slice_replacement": cost("slices along one dimension are planned as look-ups"),
    "optimizations.math.fast": results(
        "constants are combined, and divisions by an array with fewer elements become products with its reciprocal: "
        "NaN, infinities and the last bits may differ; programs loaded from files are as without it"
    ),
    "optimizations.math.dot_strength": none(
        "matrix multiplications stay; plans take vertices without the matrix engine where these are cheaper"
    ),
    "pooling.poplar_options": none("see the flags of poolings below"),
    "scheduling.algorithm": cost(
        "the order of instructions outside of loops, and so what is alive at once; the host has the same order"
    ),
    "scheduling.maximum_scheduler_lookahead_depth": cost("how many instructions LOOK_AHEAD looks ahead"),
    "scheduling.maximum_scheduler_search_space_size": cost("how many orders LOOK_AHEAD compares for each decision"),
    "slices.poplar_options": cost("see the flags of slices below"),
}
"""Effects by the attribute of IPUConfig."""

OLDER: Mapping[str, Effect] = {
    "retain_control_dependencies": none("operations with an effect keep their order in a tf.function"),
    "use_verified_transfers": none(NO_VERIFICATION),
    "verification_options": none(NO_VERIFICATION),
    "profiling.enable_compilation_trace": host("a report like that of ipu.profile in the events of compilations"),
    "profiling.enable_ipu_trace_events": host("compilations and executions are events of gen_ipu_ops.ipu_event_trace"),
    "profiling.enable_poplar_reports_text": host("reports in events are text, and JSON otherwise"),
    "profiling.enable_poplar_reports_cbor": none("reports in events are text or JSON"),
    "profiling.enable_poplar_graph": host("the compute sets in the events of compilations"),
    "profiling.execution_trace_type": host("any profile puts reports into the events of executions"),
    "profiling.report_every_nth_execution": host("which executions are reported; 0 is the first alone"),
    "profiling.max_report_size": host("larger reports are left out of the events"),
    "profiling.report_directory": none("reports are in the events; ipu.profile writes files"),
    "profiling.graph_options": none(f"{NO_REPORTS}; see the flags of reports below"),
    "profiling.execution_options": none(f"{NO_REPORTS}; see the flags of reports below"),
}
"""Effects by the attribute that only the options of older programs have (create_ipu_config)."""
