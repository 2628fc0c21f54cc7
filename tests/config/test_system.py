"""Configuration of a system: validation, devices, versions, queries."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.errors import ConfigurationError
from ipu import utils
from ipu._internal.config.system import current_system
from ipu.config import (
    DeviceConnectionType,
    IPUConfig,
    StochasticRoundingBehaviour,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from tests.config.test_tree import write


def configured(**values: Any) -> IPUConfig:
    """Puts a configuration in force; attributes are given by dotted name, with a double underscore for the dot."""
    config = IPUConfig()
    for name, value in values.items():
        write(config, name.replace("__", "."), value)
    config.configure_ipu_system()
    return config


def test_nothing_configured_is_one_ipu() -> None:
    system = current_system()
    assert not system.configured and [device.ipus for device in system.devices] == [1]
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        get_ipu_config()
    reset_ipu_configuration()


@pytest.mark.parametrize(
    ("values", "ipus", "normalised"),
    [
        ({}, [1], []),
        ({"auto_select_ipus": 1}, [1], [1]),
        ({"auto_select_ipus": 3}, [3], [3]),
        ({"auto_select_ipus": [2, 4]}, [2, 4], [2, 4]),
        ({"auto_select_ipus": (1, 2)}, [1, 2], [1, 2]),
        ({"select_ipus": 8}, [1], [8]),
        ({"select_ipus": [0, 1, 2, 3]}, [1, 1, 1, 1], [0, 1, 2, 3]),
        ({"select_ipus": [24, 25]}, [4, 4], [24, 25]),
        ({"select_ipus": [15, 16, 23, 27, 28, 29, 30]}, [1, 2, 2, 4, 8, 8, 16], [15, 16, 23, 27, 28, 29, 30]),
    ],
)
def test_devices(values: dict[str, Any], ipus: list[int], normalised: list[int]) -> None:
    config = configured(**values)
    assert [device.ipus for device in current_system().devices] == ipus
    assert [utils.get_num_of_ipus_in_device(f"/device:IPU:{ordinal}") for ordinal in range(len(ipus))] == ipus
    assert len(get_ipu_config()) == len(ipus)
    for name in values:
        assert getattr(config, name) == normalised


@pytest.mark.parametrize("name", ["/device:IPU:2", "/device:CPU:0", "IPU"])
def test_device_that_is_not_there(name: str) -> None:
    configured(auto_select_ipus=[1, 1])
    with pytest.raises(ValueError, match="Expected"):
        utils.get_num_of_ipus_in_device(name)


def test_replicas() -> None:
    configured(auto_select_ipus=[8])
    device = current_system().device()
    assert [device.replicas(shards) for shards in (1, 2, 4, 8)] == [8, 4, 2, 1]
    with pytest.raises(ConfigurationError, match="Nearest: auto_select_ipus = 9"):
        device.replicas(3)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"auto_select_ipus": 1, "select_ipus": 1}, "Received both"),
        ({"auto_select_ipus": 0}, "1 or more"),
        ({"auto_select_ipus": [2, -1]}, "1 or more"),
        ({"select_ipus": [1, 2, 1]}, r"Nearest: \[1, 2\]"),
        ({"select_ipus": 31}, r"Nearest: \[30\]"),
        ({"select_ipus": [-1]}, r"Nearest: \[0\]"),
        (
            {
                "io_tiles__num_io_tiles": 2,
                "norms__experimental__distributed_batch_norm_replica_group_size": 2,
            },
            "distributed batch norm",
        ),
        ({"norms__experimental__distributed_batch_norm_replica_group_size": 0}, "1 or more"),
        ({"io_tiles__place_ops_on_io_tiles": True}, "num_io_tiles"),
        ({"io_tiles__num_io_tiles": -2}, "0 or more"),
        ({"io_tiles__available_memory_proportion": 1.5}, "between"),
        ({"io_tiles__available_memory_proportion": float("nan")}, "between"),
        ({"device_connection__type": DeviceConnectionType.PRE_COMPILE}, "device_connection.version"),
        ({"device_connection__type": DeviceConnectionType.NEVER}, "device_connection.version"),
        ({"device_connection__version": "ipu7"}, "device_connection.version"),
        ({"experimental__multi_replica_distribution__process_index": 1}, "process_index"),
        (
            {
                "experimental__multi_replica_distribution__process_index": 2,
                "experimental__multi_replica_distribution__process_count": 2,
            },
            "process_index 2 with process_count 2",
        ),
        ({"ipu_model__tiles_per_ipu": -1}, "tiles_per_ipu"),
        ({"scheduling__maximum_scheduler_lookahead_depth": -1}, "lookahead_depth to be 0 or more. Received: -1"),
        ({"scheduling__maximum_scheduler_search_space_size": 0}, "search_space_size to be 1 or more"),
        ({"optimizations__maximum_reduce_many_buffer_size": -8}, "maximum_reduce_many_buffer_size to be 0 or more"),
    ],
)
def test_contradictions_are_refused_when_configured(values: dict[str, Any], match: str) -> None:
    before = current_system()
    with pytest.raises(ValueError, match=match):
        configured(**values)
    assert current_system() is before


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"select_ipus": 1}, "auto_select_ipus"),
        ({"ipu_model__version": ""}, "ipu_model.version"),
        ({"experimental__multi_replica_distribution__process_count": 1}, "process_count"),
    ],
)
def test_what_the_ipu_model_cannot_do(values: dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(**values)
    reset_ipu_configuration()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--other=1 --use_ipu_model")
    assert utils.running_on_ipu_model()
    with pytest.raises(ValueError, match=match):
        configured(**values)


def test_not_on_the_ipu_model_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    assert not utils.running_on_ipu_model()


@pytest.mark.parametrize("config", [None, {}, "cpu", IPUConfig])
def test_something_else_is_no_configuration(config: object) -> None:
    with pytest.raises(TypeError, match="Expected config to be an IPUConfig"):
        configure_ipu_system(config)  # type: ignore[arg-type]


def test_same_configuration_again_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    configured(auto_select_ipus=2)
    before = current_system()
    configured(auto_select_ipus=[2])
    assert current_system() is before and not caplog.records


def test_another_configuration_warns_and_has_another_version(caplog: pytest.LogCaptureFixture) -> None:
    configured(auto_select_ipus=2)
    before = current_system().version
    configured(auto_select_ipus=4)
    assert current_system().version > before and current_system().device().ipus == 4
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_another_configuration_may_be_forbidden() -> None:
    from tensorflow.errors import FailedPreconditionError

    config = configured(auto_select_ipus=2)
    configure_ipu_system(config, "cpu", reset_configuration=False)
    other = IPUConfig()
    with pytest.raises(FailedPreconditionError, match="reset_ipu_configuration"):
        configure_ipu_system(other, reset_configuration=False)
    assert current_system().device().ipus == 2
    reset_ipu_configuration()
    configure_ipu_system(other, reset_configuration=False)
    assert current_system().configured


def test_reset_gives_another_version() -> None:
    configured(auto_select_ipus=2)
    before = current_system().version
    reset_ipu_configuration()
    assert current_system().version > before and not current_system().configured


def test_later_changes_have_no_effect() -> None:
    config = configured(auto_select_ipus=2)
    config.auto_select_ipus = 8
    config.io_tiles.num_io_tiles = 4
    answer = get_ipu_config()[0]
    assert answer.auto_select_ipus == [2] and answer.io_tiles.num_io_tiles == 0
    answer.auto_select_ipus.append(1)
    assert get_ipu_config()[0].auto_select_ipus == [2]


@pytest.mark.parametrize("requested, reserved", [(0, 0), (1, 2), (31, 32), (32, 32), (191, 192), (500, 192)])
def test_io_tiles_are_even_and_at_most_192(requested: int, reserved: int) -> None:
    configured(io_tiles__num_io_tiles=requested)
    assert current_system().io_tiles == reserved


def test_floating_point_behaviour() -> None:
    configured()
    system = current_system()
    assert system.floating_point_exceptions == frozenset()
    assert not system.nan_on_overflow and not system.compiler_options.fast_math
    assert system.stochastic_rounding is StochasticRoundingBehaviour.OFF
    configured(floating_point_behaviour__esr=True, floating_point_behaviour__div0=True)
    assert current_system().stochastic_rounding is StochasticRoundingBehaviour.ON
    assert current_system().floating_point_exceptions == {"div0"}
    configured(floating_point_behaviour__esr=StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY)
    assert current_system().stochastic_rounding is StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY


def test_set_all_turns_everything_on_and_leaves_the_attributes() -> None:
    config = configured(floating_point_behaviour__set_all=True)
    system = current_system()
    assert system.floating_point_exceptions == {"inv", "div0", "oflo"} and system.nan_on_overflow
    assert system.stochastic_rounding is StochasticRoundingBehaviour.ON
    assert config.floating_point_behaviour.inv is False


@pytest.mark.parametrize("name", ["optimizations__math__fast", "optimizations__enable_fast_math"])
def test_fast_math_by_either_name(name: str) -> None:
    configured(**{name: True})
    assert current_system().compiler_options.fast_math
