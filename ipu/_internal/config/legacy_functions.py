"""Functions with which programs older than IPUConfig build a configuration; each updates and returns `opts`."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import UnionType
from typing import Any, NamedTuple

from engine.errors import ConfigurationError
from ipu._internal.config.deprecation import deprecated
from ipu._internal.config.effects import EFFECTS, OLDER
from ipu._internal.config.enumerations import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipu._internal.config.errors import WrongAttributeType
from ipu._internal.config.legacy import IpuOptions, VerificationOptions
from ipu._internal.config.library_flags import LIBRARIES, REPORTS, check_flags

use_ipu_config = deprecated("use an ipu.config.IPUConfig instance instead.")
REQUIRED = inspect.Parameter.empty


class LegacyArgument(NamedTuple):
    """An argument of a function: its default, and the full name of the attribute it sets.

    `converted` computes the attribute's value from a value of type `accepts`; None leaves the attribute as it is.
    """

    default: Any
    attribute: str
    converted: Callable[[Any], Any] = lambda given: given
    accepts: type | UnionType = object


FLAGS_TYPE = Mapping | None
FLAGGED = LIBRARIES.keys() | REPORTS.keys()


def profile_type(given: bool | ExecutionProfileType | None) -> ExecutionProfileType:
    """The type of profile for an argument: True is a profile of the device, False and None are none."""
    return given if isinstance(given, ExecutionProfileType) else ExecutionProfileType(int(bool(given)))


def version_name(version: str | int) -> str:
    """The name of a version: 2 means "ipu2"."""
    return f"ipu{version}" if isinstance(version, int) else version


def scheduling_algorithm(given: str | SchedulingAlgorithm) -> object:
    """The algorithm for an argument, which was a name in older releases: "PostOrder" is POST_ORDER, "" the choice."""
    names = {each.name.title().replace("_", ""): each for each in SchedulingAlgorithm}
    return {**names, "": SchedulingAlgorithm.CHOOSE_BEST}.get(given, given) if isinstance(given, str) else given


CREATION = {
    "profiling": LegacyArgument(False, "profiling.enable_compilation_trace"),
    "enable_ipu_events": LegacyArgument(False, "profiling.enable_ipu_trace_events"),
    "use_poplar_text_report": LegacyArgument(False, "profiling.enable_poplar_reports_text"),
    "use_poplar_cbor_report": LegacyArgument(False, "profiling.enable_poplar_reports_cbor"),
    "profile_execution": LegacyArgument(
        None, "profiling.execution_trace_type", profile_type, bool | ExecutionProfileType | None
    ),
    "enable_poplar_serialized_graph": LegacyArgument(False, "profiling.enable_poplar_graph"),
    "report_every_nth_execution": LegacyArgument(0, "profiling.report_every_nth_execution"),
    "max_report_size": LegacyArgument(0x10000000, "profiling.max_report_size"),
    "report_directory": LegacyArgument("", "profiling.report_directory"),
    "scheduler_selection": LegacyArgument(
        SchedulingAlgorithm.CHOOSE_BEST, "scheduling.algorithm", scheduling_algorithm
    ),
    "always_rearrange_copies_on_the_host": LegacyArgument(False, "experimental.always_rearrange_copies_on_the_host"),
    "merge_infeed_io_copies": LegacyArgument(False, "optimizations.merge_infeed_io_copies"),
    "disable_graph_outlining": LegacyArgument(False, "optimizations.enable_graph_outlining", operator.not_, bool),
    "retain_control_dependencies": LegacyArgument(False, "retain_control_dependencies"),
    "max_cross_replica_sum_buffer_size": LegacyArgument(0, "optimizations.maximum_cross_replica_sum_buffer_size"),
    "max_inter_ipu_copies_buffer_size": LegacyArgument(0, "optimizations.maximum_inter_ipu_copies_buffer_size"),
    "max_scheduler_lookahead_depth": LegacyArgument(5, "scheduling.maximum_scheduler_lookahead_depth"),
    "max_scheduler_search_space_size": LegacyArgument(64, "scheduling.maximum_scheduler_search_space_size"),
    "prefetch_data_streams": LegacyArgument(True, "optimizations.prefetch_data_streams"),
    "selection_order": LegacyArgument(SelectionOrder.AUTO, "selection_order"),
    "enable_experimental_remote_buffer_embedding": LegacyArgument(False, "experimental.enable_remote_buffer_embedding"),
}
FLAGS = {
    "compilation": "compilation_poplar_options",
    "convolution": "convolutions.poplar_options",
    "gcl": "gcl_poplar_options",
    "pooling": "pooling.poplar_options",
}
NO_MERGING = MergeRemoteBuffersBehaviour.NO_MERGING
SETTERS: dict[str, tuple[str, dict[str, LegacyArgument]]] = {
    **{
        f"set_{library}_options": (
            f"Set the IPU {library} options for the session.",
            {f"{library}_options": LegacyArgument(None, attribute, accepts=FLAGS_TYPE)},
        )
        for library, attribute in FLAGS.items()
    },
    "set_matmul_options": (
        "Set the IPU matrix multiplication options for the session.",
        {
            "matmul_options": LegacyArgument(None, "matmuls.poplar_options", accepts=FLAGS_TYPE),
            "clear_pass_type": LegacyArgument(False, "matmuls.clear_pass_type"),
        },
    ),
    "set_report_options": (
        "Set the options of graph and execution reports.",
        {
            "graph_options": LegacyArgument(None, "profiling.graph_options", accepts=FLAGS_TYPE),
            "execution_options": LegacyArgument(None, "profiling.execution_options", accepts=FLAGS_TYPE),
        },
    ),
    "set_experimental_multi_replica_distribution_options": (
        "Configure run-time parallel processes to execute the same program.",
        {
            "process_count": LegacyArgument(REQUIRED, "experimental.multi_replica_distribution.process_count"),
            "process_index": LegacyArgument(REQUIRED, "experimental.multi_replica_distribution.process_index"),
        },
    ),
    "set_floating_point_behaviour_options": (
        "Set the IPU floating point control behaviour bits; each is on unless it is set to False.",
        {
            name: LegacyArgument(True, f"floating_point_behaviour.{name}")
            for name in ("inv", "div0", "oflo", "esr", "nanoo")
        },
    ),
    "set_io_tile_options": (
        "Set the number of tiles reserved for I/O per IPU; None leaves `place_ops_on_io_tiles` as it is.",
        {
            "num_io_tiles": LegacyArgument(REQUIRED, "io_tiles.num_io_tiles"),
            "place_ops_on_io_tiles": LegacyArgument(None, "io_tiles.place_ops_on_io_tiles"),
            "io_tile_available_memory_proportion": LegacyArgument(0.9, "io_tiles.available_memory_proportion"),
        },
    ),
    "set_ipu_connection_type": (
        'Configure when to attach to the device; version 2 means "ipu2".',
        {
            "connection_type": LegacyArgument(DeviceConnectionType.ALWAYS, "device_connection.type"),
            "ipu_version": LegacyArgument("", "device_connection.version", version_name),
            "enable_remote_buffers": LegacyArgument(False, "device_connection.enable_remote_buffers"),
        },
    ),
    "set_ipu_model_options": (
        "Set the IPU Model options; None stands for the standard number of tiles.",
        {
            "compile_ipu_code": LegacyArgument(True, "ipu_model.compile_ipu_code"),
            "tiles_per_ipu": LegacyArgument(None, "ipu_model.tiles_per_ipu", lambda tiles: tiles or 0),
            "ipu_model_version": LegacyArgument("ipu2", "ipu_model.version"),
        },
    ),
    "set_norm_options": (
        "Set the IPU options related to normalisation operations.",
        {
            "use_stable_statistics": LegacyArgument(False, "norms.use_stable_statistics"),
            "experimental_distributed_batch_norm_replica_group_size": LegacyArgument(
                1, "norms.experimental.distributed_batch_norm_replica_group_size"
            ),
        },
    ),
    "set_optimization_options": (
        "Set the IPU options related to performance / optimizations.",
        {
            "combine_embedding_lookups": LegacyArgument(False, "optimizations.combine_embedding_lookups"),
            "combine_matmuls": LegacyArgument(False, "optimizations.combine_matmuls"),
            "max_cross_replica_sum_buffer_size": LegacyArgument(
                0, "optimizations.maximum_cross_replica_sum_buffer_size"
            ),
            "max_reduce_scatter_buffer_size": LegacyArgument(0, "optimizations.maximum_reduce_scatter_buffer_size"),
            "max_inter_ipu_copies_buffer_size": LegacyArgument(0, "optimizations.maximum_inter_ipu_copies_buffer_size"),
            "max_send_recv_cluster_size": LegacyArgument(0, "optimizations.maximum_send_recv_cluster_size"),
            "minimum_remote_tensor_size": LegacyArgument(128, "optimizations.minimum_remote_tensor_size"),
            "merge_remote_buffers": LegacyArgument(NO_MERGING, "optimizations.merge_remote_buffers"),
            "gather_simplifier": LegacyArgument(True, "optimizations.enable_gather_simplifier"),
            "triangular_solve_expander_block_size": LegacyArgument(
                0, "optimizations.triangular_solve_expander_block_size"
            ),
            "cholesky_block_size": LegacyArgument(0, "optimizations.cholesky_block_size"),
            "enable_fast_math": LegacyArgument(False, "optimizations.math.fast"),
        },
    ),
    "set_recomputation_options": (
        "Set re-computation options.",
        {"allow_recompute": LegacyArgument(True, "allow_recompute")},
    ),
    "set_serialization_options": (
        "Enable / disable the serialization to disk of the compiled executables.",
        {"output_folder": LegacyArgument("", "serialization_output_folder")},
    ),
    "set_transfer_options": (
        "Set the IPU options related to data transfers.",
        {"use_verified_transfers": LegacyArgument(False, "use_verified_transfers")},
    ),
    "set_verification_options": (
        "Set the pairs of key and id for each type of data, for verified transfers.",
        {
            "verification_options": LegacyArgument(
                REQUIRED, "verification_options", VerificationOptions.to_dict, VerificationOptions
            )
        },
    ),
}
"""The documentation and the arguments, after `opts`, of each function."""


def assign(opts: IpuOptions, arguments: Mapping[str, LegacyArgument], given: Mapping[str, Any]) -> None:
    """Sets the attributes of arguments. Raises ConfigurationError for a wrong type, and a flag that a library lacks."""
    _require("opts", opts, IpuOptions)
    for name, (_, attribute, converted, accepts) in arguments.items():
        _require(name, given[name], accepts)
        library = (LIBRARIES | REPORTS).get(attribute)
        if library is not None:
            check_flags(name, given[name] or {}, library)
        value = converted(given[name]) if library is None else dict(given[name] or {})
        if value is not None:
            *categories, last = attribute.split(".")
            setattr(reduce(getattr, categories, opts), last, value)


def _require(name: str, given: object, accepts: type | UnionType) -> None:
    if not isinstance(given, accepts):
        expected = accepts.__name__ if isinstance(accepts, type) else accepts
        raise WrongAttributeType(
            f"Expected {name} of type {expected}. Received: {given!r} of type {type(given).__name__}."
        )


def documented(summary: str, arguments: Mapping[str, LegacyArgument], before: Sequence[str]) -> str:
    """A docstring with the sections that follow from the attributes that arguments set."""
    lines = ["Args:", *(f"    {each}: the options, of `create_ipu_config`; they are updated." for each in before)]
    for name, (_, attribute, converted, _) in arguments.items():
        opposite = " to the opposite" if converted is operator.not_ else ""
        lines.append(f"    {name}: sets `{attribute}`{opposite}, which {({**EFFECTS, **OLDER})[attribute]}.")
    lines += ["", "Returns:", f"    {'The same options.' if before else 'The options, an IpuOptions.'}"]
    raises = ["    TypeError: an argument is of another type."]
    if any(each.attribute in FLAGGED for each in arguments.values()):
        raises.append("    ValueError: a flag does not exist.")
    if not before:
        raises.append(
            "    ValueError: `profiling` together with `enable_ipu_events`, or `profile_execution` without `profiling`."
        )
    return "\n".join([summary, "", *lines, "", "Raises:", *raises])


def generated(
    name: str, documentation: str, arguments: Mapping[str, LegacyArgument], *before: str
) -> Callable[..., Any]:
    """A deprecated function that sets attributes of its first argument, named by `before`, or of new options."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(each, kind, default=argument.default) for each, argument in arguments.items()]
    signature = inspect.Signature([*(inspect.Parameter(each, kind) for each in before), *own])

    def function(*positional: object, **named: object) -> IpuOptions:
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            raise TypeError(f"{name}() {error}. Its arguments: {', '.join(signature.parameters)}.") from None
        bound.apply_defaults()
        opts = bound.arguments[before[0]] if before else IpuOptions()
        assign(opts, arguments, bound.arguments)
        if not before:
            _complete(opts)
        return opts

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documented(documentation, arguments, before)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return use_ipu_config(function)


def _complete(opts: IpuOptions) -> None:
    """Sets attributes that no argument of `create_ipu_config` sets, and checks its arguments about profiles."""
    profiling = opts.profiling
    if profiling.enable_compilation_trace and profiling.enable_ipu_trace_events:
        raise ConfigurationError("Expected one of profiling and enable_ipu_events. Received both. Drop one.")
    if profiling.execution_trace_type is not ExecutionProfileType.NO_PROFILE and not profiling.enable_compilation_trace:
        raise ConfigurationError(
            f"Expected profiling=True with profile_execution. Received: profile_execution="
            f"{profiling.execution_trace_type}, profiling=False."
        )
    profiling.enable_ipu_trace_events |= profiling.enable_compilation_trace
    opts.optimizations.merge_remote_buffers = NO_MERGING


def require_no_devices(opts: IpuOptions) -> None:
    """Raises ConfigurationError for no options, and if devices have been selected already."""
    _require("opts", opts, IpuOptions)
    if opts.auto_select_ipus or opts.select_ipus:
        raise ConfigurationError(
            "Expected options without devices. Received options in which IPUs have been selected already. "
            "Call only one of auto_select_ipus and select_ipus, once."
        )


@use_ipu_config
def auto_select_ipus(opts: IpuOptions, num_ipus: int | Sequence[int]) -> IpuOptions:
    """Configure the IPUs to be used by the session, by the number of IPUs of each TensorFlow device.

    Args:
        opts: the options, of `create_ipu_config`; they are updated.
        num_ipus: the number of IPUs, an integer, or one for each TensorFlow device.

    Returns:
        The same options.

    Raises:
        TypeError: `num_ipus` are no integers, or `opts` no options.
        ValueError: devices have been selected already.
    """
    require_no_devices(opts)
    _require("num_ipus", num_ipus, int | Sequence)
    opts.auto_select_ipus = [num_ipus] if isinstance(num_ipus, int) else list(num_ipus)
    return opts


@use_ipu_config
def select_ipus(opts: IpuOptions, indices: Sequence[int]) -> IpuOptions:
    """Configure the IPUs to be used by the session, by the configuration index of each TensorFlow device.

    Args:
        opts: the options, of `create_ipu_config`; they are updated.
        indices: an integer for each TensorFlow device: the Id of one or several IPUs, as in IPUConfig.select_ipus.

    Returns:
        The same options.

    Raises:
        TypeError: `indices` are no integers, or `opts` no options.
        ValueError: devices have been selected already, or an index is repeated.
    """
    require_no_devices(opts)
    _require("indices", indices, Sequence)
    if len(set(indices)) != len(indices):
        raise ConfigurationError(
            f"Expected each index once. Received: {list(indices)}. Nearest: {list(dict.fromkeys(indices))}."
        )
    opts.select_ipus = list(indices)
    return opts


FUNCTIONS = {
    "auto_select_ipus": auto_select_ipus,
    "create_ipu_config": generated(
        "create_ipu_config",
        "Create an empty IPU session configuration structure.",
        CREATION,
    ),
    "select_ipus": select_ipus,
    **{name: generated(name, *row, "opts") for name, row in SETTERS.items()},
}
"""The functions by name."""
