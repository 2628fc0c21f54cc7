"""The functions with which programs older than IPUConfig configure."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from ipu import utils
from ipu._internal.config.legacy_functions import SETTERS
from ipu._internal.config.system import current_system
from ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
)
from tests.config.test_tree import read


def test_created_options_differ_from_a_configuration_where_documented() -> None:
    opts, config = utils.create_ipu_config(), IPUConfig()
    differing = {name for name, value in config.to_dict().items() if opts.to_dict()[name] != value}
    assert differing == {"optimizations.merge_remote_buffers"}
    assert opts.optimizations.merge_remote_buffers is MergeRemoteBuffersBehaviour.NO_MERGING
    assert opts.profiling.max_report_size == 268435456


def test_create_ipu_config_puts_each_argument_where_it_belongs() -> None:
    opts = utils.create_ipu_config(
        profiling=True,
        use_poplar_text_report=True,
        profile_execution=ExecutionProfileType.TILE_PROFILE,
        report_every_nth_execution=3,
        report_directory="reports",
        scheduler_selection=SchedulingAlgorithm.LOOK_AHEAD,
        always_rearrange_copies_on_the_host=True,
        merge_infeed_io_copies=True,
        disable_graph_outlining=True,
        retain_control_dependencies=True,
        max_cross_replica_sum_buffer_size=1,
        max_inter_ipu_copies_buffer_size=2,
        max_scheduler_lookahead_depth=3,
        max_scheduler_search_space_size=4,
        prefetch_data_streams=False,
        selection_order=SelectionOrder.SNAKE,
        enable_experimental_remote_buffer_embedding=True,
    )
    expected = {
        "profiling.enable_compilation_trace": True,
        "profiling.enable_ipu_trace_events": True,
        "profiling.enable_poplar_reports_text": True,
        "profiling.enable_poplar_reports_cbor": False,
        "profiling.execution_trace_type": ExecutionProfileType.TILE_PROFILE,
        "profiling.report_every_nth_execution": 3,
        "profiling.report_directory": "reports",
        "scheduling.algorithm": SchedulingAlgorithm.LOOK_AHEAD,
        "experimental.always_rearrange_copies_on_the_host": True,
        "optimizations.merge_infeed_io_copies": True,
        "optimizations.enable_graph_outlining": False,
        "retain_control_dependencies": True,
        "optimizations.maximum_cross_replica_sum_buffer_size": 1,
        "optimizations.maximum_inter_ipu_copies_buffer_size": 2,
        "scheduling.maximum_scheduler_lookahead_depth": 3,
        "scheduling.maximum_scheduler_search_space_size": 4,
        "optimizations.prefetch_data_streams": False,
        "selection_order": SelectionOrder.SNAKE,
        "experimental.enable_remote_buffer_embedding": True,
    }
    assert {name: read(opts, name) for name in expected} == expected
    json.loads(opts.to_json())


@pytest.mark.parametrize(
    ("argument", "attribute", "value"),
    [
        ("enable_ipu_events", "enable_ipu_trace_events", True),
        ("use_poplar_cbor_report", "enable_poplar_reports_cbor", True),
        ("enable_poplar_serialized_graph", "enable_poplar_graph", True),
        ("max_report_size", "max_report_size", 7),
    ],
)
def test_arguments_about_events(argument: str, attribute: str, value: int) -> None:
    assert getattr(utils.create_ipu_config(**{argument: value}).profiling, attribute) == value
    assert getattr(utils.create_ipu_config().profiling, attribute) != value


@pytest.mark.parametrize(
    ("argument", "algorithm"),
    [("", SchedulingAlgorithm.CHOOSE_BEST), ("Clustering", SchedulingAlgorithm.CLUSTERING)]
    + [("PostOrder", SchedulingAlgorithm.POST_ORDER), ("LookAhead", SchedulingAlgorithm.LOOK_AHEAD)]
    + [("ShortestPath", SchedulingAlgorithm.SHORTEST_PATH)],
)
def test_scheduling_algorithms_have_names_of_older_releases(argument: str, algorithm: SchedulingAlgorithm) -> None:
    assert utils.create_ipu_config(scheduler_selection=argument).scheduling.algorithm is algorithm


def test_arguments_that_a_function_lacks_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"set_gcl_options\(\) got an unexpected.*num_io_tiles.*: opts, gcl_options\."):
        utils.set_gcl_options(utils.create_ipu_config(), num_io_tiles=32)
    with pytest.raises(TypeError, match=r"scheduling\.algorithm to 'clustering'"):
        utils.create_ipu_config(scheduler_selection="clustering")


@pytest.mark.parametrize(
    ("argument", "profile"),
    [
        (None, ExecutionProfileType.NO_PROFILE),
        (False, ExecutionProfileType.NO_PROFILE),
        (True, ExecutionProfileType.DEVICE_PROFILE),
        (ExecutionProfileType.IPU_PROFILE, ExecutionProfileType.IPU_PROFILE),
    ],
)
def test_profile_execution(argument: Any, profile: ExecutionProfileType) -> None:
    opts = utils.create_ipu_config(profiling=True, profile_execution=argument)
    assert opts.profiling.execution_trace_type is profile


@pytest.mark.parametrize(
    "arguments",
    [
        {"profiling": True, "enable_ipu_events": True},
        {"profile_execution": True},
        {"profile_execution": ExecutionProfileType.TILE_PROFILE},
    ],
)
def test_profiling_arguments_that_contradict_each_other(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="profiling"):
        utils.create_ipu_config(**arguments)


def test_profile_execution_may_say_that_there_is_no_profile() -> None:
    opts = utils.create_ipu_config(profile_execution=ExecutionProfileType.NO_PROFILE)
    assert opts.profiling.execution_trace_type is ExecutionProfileType.NO_PROFILE


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "set_compilation_options",
        {"compilation_options": {"debug.instrument": "true"}},
        {"compilation_poplar_options": {"debug.instrument": "true"}},
    ),
    (
        "set_convolution_options",
        {"convolution_options": {"availableMemoryProportion": "0.1"}},
        {"convolutions.poplar_options": {"availableMemoryProportion": "0.1"}},
    ),
    ("set_convolution_options", {}, {"convolutions.poplar_options": {}}),
    (
        "set_matmul_options",
        {"matmul_options": {"availableMemoryProportion": "0.1"}, "clear_pass_type": True},
        {"matmuls.poplar_options": {"availableMemoryProportion": "0.1"}, "matmuls.clear_pass_type": True},
    ),
    (
        "set_pooling_options",
        {"pooling_options": {"optimizeForSpeed": "1"}},
        {"pooling.poplar_options": {"optimizeForSpeed": "1"}},
    ),
    ("set_gcl_options", {"gcl_options": {"method": "auto"}}, {"gcl_poplar_options": {"method": "auto"}}),
    (
        "set_report_options",
        {"graph_options": {"graphOptions": "false"}, "execution_options": {"executionOptions": "false"}},
        {
            "profiling.graph_options": {"graphOptions": "false"},
            "profiling.execution_options": {"executionOptions": "false"},
        },
    ),
    (
        "set_experimental_multi_replica_distribution_options",
        {"process_count": 2, "process_index": 1},
        {
            "experimental.multi_replica_distribution.process_count": 2,
            "experimental.multi_replica_distribution.process_index": 1,
        },
    ),
    (
        "set_floating_point_behaviour_options",
        {"oflo": False},
        {
            "floating_point_behaviour.inv": True,
            "floating_point_behaviour.div0": True,
            "floating_point_behaviour.oflo": False,
            "floating_point_behaviour.esr": True,
            "floating_point_behaviour.nanoo": True,
        },
    ),
    *(
        ("set_floating_point_behaviour_options", {name: False}, {f"floating_point_behaviour.{name}": False})
        for name in ("inv", "div0", "esr", "nanoo")
    ),
    (
        "set_io_tile_options",
        {"num_io_tiles": 8, "io_tile_available_memory_proportion": 0.5},
        {
            "io_tiles.num_io_tiles": 8,
            "io_tiles.place_ops_on_io_tiles": False,
            "io_tiles.available_memory_proportion": 0.5,
        },
    ),
    (
        "set_io_tile_options",
        {"num_io_tiles": 8, "place_ops_on_io_tiles": True},
        {"io_tiles.place_ops_on_io_tiles": True},
    ),
    (
        "set_ipu_connection_type",
        {"connection_type": DeviceConnectionType.NEVER, "ipu_version": 2, "enable_remote_buffers": True},
        {
            "device_connection.type": DeviceConnectionType.NEVER,
            "device_connection.version": "ipu2",
            "device_connection.enable_remote_buffers": True,
        },
    ),
    ("set_ipu_connection_type", {"ipu_version": "ipu1"}, {"device_connection.version": "ipu1"}),
    (
        "set_ipu_model_options",
        {"compile_ipu_code": False, "tiles_per_ipu": 128, "ipu_model_version": "ipu1"},
        {"ipu_model.compile_ipu_code": False, "ipu_model.tiles_per_ipu": 128, "ipu_model.version": "ipu1"},
    ),
    ("set_ipu_model_options", {}, {"ipu_model.tiles_per_ipu": 0}),
    (
        "set_norm_options",
        {"use_stable_statistics": True, "experimental_distributed_batch_norm_replica_group_size": 2},
        {
            "norms.use_stable_statistics": True,
            "norms.experimental.distributed_batch_norm_replica_group_size": 2,
        },
    ),
    (
        "set_optimization_options",
        {
            "combine_embedding_lookups": True,
            "combine_matmuls": True,
            "max_reduce_scatter_buffer_size": 5,
            "max_send_recv_cluster_size": 6,
            "minimum_remote_tensor_size": 7,
            "merge_remote_buffers": MergeRemoteBuffersBehaviour.MERGE,
            "gather_simplifier": False,
            "max_cross_replica_sum_buffer_size": 3,
            "max_inter_ipu_copies_buffer_size": 4,
            "triangular_solve_expander_block_size": 9,
            "cholesky_block_size": 8,
            "enable_fast_math": True,
        },
        {
            "optimizations.combine_embedding_lookups": True,
            "optimizations.combine_matmuls": True,
            "optimizations.maximum_reduce_scatter_buffer_size": 5,
            "optimizations.maximum_send_recv_cluster_size": 6,
            "optimizations.minimum_remote_tensor_size": 7,
            "optimizations.merge_remote_buffers": MergeRemoteBuffersBehaviour.MERGE,
            "optimizations.enable_gather_simplifier": False,
            "optimizations.maximum_cross_replica_sum_buffer_size": 3,
            "optimizations.maximum_inter_ipu_copies_buffer_size": 4,
            "optimizations.triangular_solve_expander_block_size": 9,
            "optimizations.cholesky_block_size": 8,
            "optimizations.math.fast": True,
        },
    ),
    ("set_recomputation_options", {}, {"allow_recompute": True}),
    ("set_recomputation_options", {"allow_recompute": False}, {"allow_recompute": False}),
    ("set_serialization_options", {"output_folder": "x"}, {"serialization_output_folder": "x"}),
    ("set_transfer_options", {"use_verified_transfers": True}, {"use_verified_transfers": True}),
]


@pytest.mark.parametrize(("function", "arguments", "expected"), CASES)
def test_set_functions(function: str, arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    opts = getattr(utils, function)(utils.create_ipu_config(), **arguments)
    assert {name: read(opts, name) for name in expected} == expected
    assert "(deprecated)" in (getattr(utils, function).__doc__ or "").split("\n")[0]


def test_every_argument_of_a_set_function_has_a_case() -> None:
    tried = {(function, name) for function, arguments, _ in CASES for name in arguments}
    every = {(function, name) for function, (_, arguments) in SETTERS.items() for name in arguments}
    assert every - tried == {("set_verification_options", "verification_options")}


def test_verification_options() -> None:
    keys = VerificationOptions()
    keys.inputs.key = 1
    keys.input_parameters = KeyId(1)
    keys.infeeds["training_feed"].key = 3
    opts = utils.set_verification_options(utils.create_ipu_config(), keys)
    assert opts.verification_options["inputs"] == {"key": 1, "start_id": -1}
    assert opts.verification_options["infeeds"] == {"training_feed": {"key": 3, "start_id": -1}}
    assert opts.verification_options["outfeeds"] == {}
    json.loads(opts.to_json())


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        ("set_verification_options", 3, "verification_options of type VerificationOptions"),
        ("set_matmul_options", 3, "matmul_options of type .*Mapping .* None"),
        ("auto_select_ipus", 2.5, "num_ipus of type int .*Sequence"),
        ("select_ipus", 3, "indices of type .*Sequence"),
    ],
)
def test_wrong_types_are_refused_by_name(function: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=f"Expected {expected}. Received: {value} of type {type(value).__name__}"):
        getattr(utils, function)(utils.create_ipu_config(), value)
    with pytest.raises(TypeError, match="Expected opts of type IpuOptions"):
        getattr(utils, function)("opts", value)


def test_selection_and_configuration() -> None:
    opts = utils.auto_select_ipus(utils.create_ipu_config(), num_ipus=[1, 2])
    utils.configure_ipu_system(opts)
    assert [device.ipus for device in current_system().devices] == [1, 2]
    utils.configure_ipu_system(utils.select_ipus(utils.create_ipu_config(), indices=[24, 0]))
    assert [device.ipus for device in current_system().devices] == [4, 1]
    utils.configure_ipu_system(utils.auto_select_ipus(utils.create_ipu_config(), 4))
    assert [device.ipus for device in current_system().devices] == [4]


def test_devices_are_selected_once() -> None:
    opts = utils.auto_select_ipus(utils.create_ipu_config(), 1)
    with pytest.raises(Exception, match="selected already"):
        utils.auto_select_ipus(opts, 1)
    with pytest.raises(Exception, match="selected already"):
        utils.select_ipus(opts, [1])
    with pytest.raises(ValueError, match=r"Nearest: \[1, 2\]"):
        utils.select_ipus(utils.create_ipu_config(), [1, 2, 1])


def test_deprecated_functions_warn_once() -> None:
    source = "from ipu import utils\nfor _ in range(3): utils.create_ipu_config()"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stderr.count("create_ipu_config is deprecated: use an ipu.config.IPUConfig") == 1


def test_older_programs_find_the_configuration_in_utils() -> None:
    """`ipu.utils.IPUConfig` is where it was before it moved to `ipu.config`."""
    from tensorflow.python.ipu import utils as documented

    assert documented.IPUConfig is IPUConfig and "IPUConfig" in utils.__all__
    config = documented.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 2
