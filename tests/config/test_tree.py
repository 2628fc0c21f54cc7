"""The configuration tree: documented attributes and defaults, exact types, names, metadata."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
from typing import Any

import pytest

from ipu._internal.config.category import Category, option
from ipu.config import (
    AttributeMetadata,
    DeviceConnectionType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)

NUMBERS = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"

# Name, type and default as the documentation of IPUConfig lists them.
DOCUMENTED: list[tuple[str, str, Any]] = [
    ("allow_recompute", "bool", False),
    ("selection_order", "SelectionOrder", SelectionOrder.AUTO),
    ("serialization_output_folder", "str", ""),
    ("compilation_poplar_options", "dict", {}),
    ("gcl_poplar_options", "dict", {}),
    ("auto_select_ipus", NUMBERS, []),
    ("select_ipus", NUMBERS, []),
    ("convolutions.poplar_options", "dict", {}),
    ("device_connection.type", "DeviceConnectionType", DeviceConnectionType.ALWAYS),
    ("device_connection.version", "str", ""),
    ("device_connection.enable_remote_buffers", "bool", False),
    ("experimental.always_rearrange_copies_on_the_host", "bool", False),
    ("experimental.enable_remote_buffer_embedding", "bool", False),
    ("experimental.multi_replica_distribution.process_index", "int", 0),
    ("experimental.multi_replica_distribution.process_count", "int", 0),
    ("floating_point_behaviour.inv", "bool", False),
    ("floating_point_behaviour.div0", "bool", False),
    ("floating_point_behaviour.oflo", "bool", False),
    ("floating_point_behaviour.esr", "bool | StochasticRoundingBehaviour", False),
    ("floating_point_behaviour.nanoo", "bool", False),
    ("floating_point_behaviour.set_all", "bool", False),
    ("io_tiles.num_io_tiles", "int", 0),
    ("io_tiles.place_ops_on_io_tiles", "bool", False),
    ("io_tiles.available_memory_proportion", "float", 0.9),
    ("ipu_model.compile_ipu_code", "bool", True),
    ("ipu_model.tiles_per_ipu", "int", 0),
    ("ipu_model.version", "str", "ipu2"),
    ("matmuls.clear_pass_type", "bool", False),
    ("matmuls.poplar_options", "dict", {}),
    ("norms.use_stable_statistics", "bool", False),
    ("norms.experimental.distributed_batch_norm_replica_group_size", "int", 1),
    ("optimizations.prefetch_data_streams", "bool", True),
    ("optimizations.combine_embedding_lookups", "bool", False),
    ("optimizations.combine_matmuls", "bool", False),
    ("optimizations.enable_graph_outlining", "bool", True),
    ("optimizations.merge_infeed_io_copies", "bool", False),
    ("optimizations.maximum_cross_replica_sum_buffer_size", "int", 0),
    ("optimizations.maximum_reduce_scatter_buffer_size", "int", 0),
    ("optimizations.maximum_inter_ipu_copies_buffer_size", "int", 0),
    ("optimizations.maximum_send_recv_cluster_size", "int", 0),
    ("optimizations.minimum_remote_tensor_size", "int", 128),
    (
        "optimizations.merge_remote_buffers",
        "MergeRemoteBuffersBehaviour",
        MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
    ),
    ("optimizations.enable_gather_simplifier", "bool", True),
    ("optimizations.triangular_solve_expander_block_size", "int", 0),
    ("optimizations.cholesky_block_size", "int", 0),
    ("optimizations.enable_fast_math", "bool", False),
    ("pooling.poplar_options", "dict", {}),
    ("scheduling.algorithm", "SchedulingAlgorithm", SchedulingAlgorithm.CHOOSE_BEST),
    ("scheduling.maximum_scheduler_lookahead_depth", "int", 5),
    ("scheduling.maximum_scheduler_search_space_size", "int", 64),
]
LATER = {
    "experimental.enable_prng_stability": False,
    "optimizations.math.fast": False,
    "optimizations.math.dot_strength": True,
    "optimizations.maximum_reduce_many_buffer_size": 0,
    "optimizations.maximum_all_gather_buffer_size": 0,
    "optimizations.enable_dynamic_slice_replacement": True,
    "slices.poplar_options": {},
}


def read(config: Any, name: str) -> Any:
    """The attribute with a dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def write(config: Any, name: str, value: object) -> None:
    """Sets the attribute with a dotted name."""
    above, _, last = name.rpartition(".")
    setattr(read(config, above) if above else config, last, value)


@pytest.mark.parametrize(("name", "type_name", "default"), DOCUMENTED)
def test_documented_attribute(name: str, type_name: str, default: object) -> None:
    config = IPUConfig()
    value = read(config, name)
    assert value == default and type(value) is type(default)
    metadata = config.get_attribute_metadata(name)
    assert isinstance(metadata, AttributeMetadata)
    assert (metadata.name, metadata.type, metadata.default) == (name, type_name, default)
    assert metadata.__doc__
    assert metadata.check_type(default) is True


def test_attributes_are_the_documented_ones_and_those_of_later_releases() -> None:
    assert set(IPUConfig().to_dict()) == {name for name, _, _ in DOCUMENTED} | set(LATER)
    for name, default in LATER.items():
        assert read(IPUConfig(), name) == default


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allow_recompute", 1),
        ("allow_recompute", None),
        ("io_tiles.num_io_tiles", True),
        ("io_tiles.num_io_tiles", 1.0),
        ("io_tiles.available_memory_proportion", 1),
        ("serialization_output_folder", b"x"),
        ("selection_order", 0),
        ("selection_order", DeviceConnectionType.ALWAYS),
        ("compilation_poplar_options", [("a", "b")]),
        ("auto_select_ipus", True),
        ("auto_select_ipus", 1.0),
        ("auto_select_ipus", [1, True]),
        ("auto_select_ipus", (1, "2")),
        ("auto_select_ipus", {1}),
        ("floating_point_behaviour.esr", 1),
    ],
)
def test_type_must_be_exact(name: str, value: object) -> None:
    config = IPUConfig()
    before = read(config, name)
    with pytest.raises(TypeError, match=f"Trying to set {name} to .*, but it must be of type"):
        write(config, name, value)
    with pytest.raises(TypeError, match="must be of type"):
        config.get_attribute_metadata(name).check_type(value)
    assert read(config, name) == before


@pytest.mark.parametrize("value", [1, [1], [2, 4], (1, 2), [], ()])
def test_union_of_types(value: object) -> None:
    config = IPUConfig()
    config.auto_select_ipus = value
    assert config.auto_select_ipus == value and type(config.auto_select_ipus) is type(value)


@pytest.mark.parametrize("value", [True, False, *StochasticRoundingBehaviour])
def test_stochastic_rounding_is_bool_or_enumeration(value: bool | StochasticRoundingBehaviour) -> None:
    config = IPUConfig()
    config.floating_point_behaviour.esr = value
    assert config.floating_point_behaviour.esr is value


def test_stochastic_rounding_off_and_on_equal_the_older_bools() -> None:
    assert StochasticRoundingBehaviour.from_bool(True) == True  # noqa: E712
    assert StochasticRoundingBehaviour.from_bool(False) == False  # noqa: E712


@pytest.mark.parametrize("name", ["io_tiles", "device_connection", "optimizations.math"])
def test_category_cannot_be_assigned(name: str) -> None:
    with pytest.raises(Exception, match=f"{name} is a category and cannot be assigned to"):
        write(IPUConfig(), name, read(IPUConfig(), name))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("auto_select_ipu", "auto_select_ipus"),
        ("io_tile", "io_tiles"),
        ("io_tiles.num_iotiles", "io_tiles.num_io_tiles"),
        ("num_io_tiles", "io_tiles.num_io_tiles"),
        ("optimizations.math.fats", "optimizations.math.fast"),
        ("optimizations.combine_matmul", "optimizations.combine_matmuls"),
    ],
)
def test_unknown_name_gets_a_suggestion(name: str, suggestion: str) -> None:
    message = f"'{name}' is not a valid attribute of this config. Did you mean '{suggestion}'\\?"
    with pytest.raises(ValueError, match=message):
        read(IPUConfig(), name)
    with pytest.raises(ValueError, match=message):
        write(IPUConfig(), name, 1)
    with pytest.raises(ValueError, match=f"Could not get attribute metadata for '{name}'"):
        IPUConfig().get_attribute_metadata(name)


def test_unknown_name_far_from_all_gets_none() -> None:
    with pytest.raises(ValueError, match="not a valid attribute of this config.$"):
        IPUConfig().zzzzzzzz  # noqa: B018
    assert not hasattr(IPUConfig(), "zzzzzzzz")


def test_metadata_is_relative_to_the_category_asked() -> None:
    config = IPUConfig()
    metadata = config.experimental.get_attribute_metadata("multi_replica_distribution.process_count")
    assert metadata.name == "experimental.multi_replica_distribution.process_count"
    assert config.optimizations.math.get_attribute_metadata("fast").type == "bool"


def test_metadata_of_a_category() -> None:
    metadata = IPUConfig().get_attribute_metadata("norms.experimental")
    assert (metadata.name, metadata.type, metadata.default) == ("norms.experimental", None, None)
    assert "normalization" in (metadata.__doc__ or "")
    assert not metadata.deprecated and metadata.deprecated_msg is None


def test_defaults_are_not_shared() -> None:
    first = IPUConfig()
    first.convolutions.poplar_options["availableMemoryProportion"] = "0.1"
    first.auto_select_ipus.append(3)
    first.get_attribute_metadata("matmuls.poplar_options").default["a"] = "b"
    assert IPUConfig().convolutions.poplar_options == {} and IPUConfig().auto_select_ipus == []
    assert IPUConfig().matmuls.poplar_options == {}


def test_deprecated_option_warns_when_set(caplog: pytest.LogCaptureFixture) -> None:
    config = IPUConfig()
    metadata = config.get_attribute_metadata("optimizations.enable_fast_math")
    assert metadata.deprecated and "optimizations.math.fast" in (metadata.deprecated_msg or "")
    assert config.optimizations.enable_fast_math is False and not caplog.records
    config.optimizations.enable_fast_math = True
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "optimizations.enable_fast_math has been deprecated: use" in caplog.text
    metadata.warn_if_deprecated()
    IPUConfig().get_attribute_metadata("allow_recompute").warn_if_deprecated()
    assert len(caplog.records) == 2


class Inner(Category):
    """A category below a deprecated one."""

    value: int = option(1, "A value.")


class Old(Category, deprecated="use something newer."):
    """A deprecated category."""

    value: int = option(1, "A value.")
    own: int = option(1, "A value.", deprecated="for its own reason.")
    inner: Inner


class Root(Category):
    """A root."""

    old: Old
    inner: Inner


def test_deprecated_category_deprecates_what_is_in_it(caplog: pytest.LogCaptureFixture) -> None:
    root = Root()
    messages = {
        name: root.get_attribute_metadata(name).deprecated_msg
        for name in ("old", "old.value", "old.inner", "old.inner.value", "old.own", "inner", "inner.value")
    }
    newer = "use something newer."
    assert messages == {
        "old": newer,
        "old.value": newer,
        "old.inner": newer,
        "old.inner.value": newer,
        "old.own": "for its own reason.",
        "inner": None,
        "inner.value": None,
    }
    root.inner.value = 2
    assert not caplog.records
    root.old.inner.value = 2
    assert "old.inner.value has been deprecated: use something newer." in caplog.text


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))])
def test_copies(duplicate: Any) -> None:
    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.scheduling.algorithm = SchedulingAlgorithm.POST_ORDER
    twin = duplicate(config)
    assert type(twin) is IPUConfig and twin.to_dict() == config.to_dict()
    if duplicate is not copy.copy:
        twin.io_tiles.num_io_tiles = 32
        twin.auto_select_ipus.append(3)
        assert config.io_tiles.num_io_tiles == 0 and config.auto_select_ipus == [1, 2]


def test_str_and_repr() -> None:
    config = IPUConfig()
    lines = str(config).split("\n")
    assert len(lines) == len(config.to_dict())
    assert "io_tiles.available_memory_proportion = 0.9" in lines
    assert "ipu_model.version = 'ipu2'" in lines
    assert "scheduling.algorithm = <SchedulingAlgorithm.CHOOSE_BEST: 0>" in lines
    assert repr(config).startswith("IPUConfig:\n  allow_recompute = False\n")
    assert "  experimental = Experimental:\n    always_rearrange_copies_on_the_host = False\n" in repr(config)
    nested = "    multi_replica_distribution = MultiReplicaDistribution:\n      process_index = 0\n"
    assert nested in repr(config)
    assert str(config.pooling) == "pooling.poplar_options = {}"


def test_documentation_and_completion() -> None:
    for name, type_name, default in DOCUMENTED:
        assert f"\n{name}: {type_name} = {default!r}\n" in (IPUConfig.__doc__ or "")
    assert {"auto_select_ipus", "io_tiles", "configure_ipu_system", "to_json"} <= set(dir(IPUConfig()))


def test_configuration_needs_no_heavy_import() -> None:
    source = (
        "import sys, ipu.config, ipu.utils; ipu.config.IPUConfig().configure_ipu_system();"
        "print([name for name in ('tensorflow', 'keras', 'numpy', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
