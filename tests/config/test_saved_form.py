"""Dictionaries and JSON of a configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu.config import IPUConfig, SchedulingAlgorithm, SelectionOrder, StochasticRoundingBehaviour
from tests.config.test_tree import read, write
from tests.exploring import examples

TEXT = st.text(max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "allow_recompute": st.booleans(),
    "auto_select_ipus": st.one_of(st.integers(), st.lists(st.integers(), max_size=3)),
    "convolutions.poplar_options": st.dictionaries(TEXT, TEXT, max_size=2),
    "floating_point_behaviour.esr": st.one_of(st.booleans(), st.sampled_from(StochasticRoundingBehaviour)),
    "io_tiles.available_memory_proportion": st.floats(allow_nan=False),
    "optimizations.math.fast": st.booleans(),
    "optimizations.enable_fast_math": st.booleans(),
    "scheduling.algorithm": st.sampled_from(SchedulingAlgorithm),
    "selection_order": st.sampled_from(SelectionOrder),
    "serialization_output_folder": TEXT,
}


@settings(max_examples=examples(100, 10))
@given(st.fixed_dictionaries({}, optional=VALUES))
def test_round_trips(values: dict[str, Any]) -> None:
    config, from_dict, from_json = IPUConfig(), IPUConfig(), IPUConfig()
    for name, value in values.items():
        write(config, name, value)
    from_dict.from_dict(config.to_dict())
    from_json.from_json(config.to_json())
    for name, value in values.items():
        for copy in (from_dict, from_json):
            assert read(copy, name) == value and type(read(copy, name)) is type(value)
    assert str(from_dict) == str(from_json) == str(config)


def test_enumerations_become_integers() -> None:
    config = IPUConfig()
    config.scheduling.algorithm = SchedulingAlgorithm.SHORTEST_PATH
    config.floating_point_behaviour.esr = StochasticRoundingBehaviour.ON
    plain = config.to_dict()
    assert plain["scheduling.algorithm"] == 4 and type(plain["scheduling.algorithm"]) is int
    assert type(plain["floating_point_behaviour.esr"]) is int
    assert json.loads(config.to_json()) == plain


def test_dictionary_is_a_copy() -> None:
    config = IPUConfig()
    config.to_dict()["matmuls.poplar_options"]["a"] = "b"
    saved = config.to_dict()
    config.from_dict(saved)
    saved["matmuls.poplar_options"]["a"] = "b"
    assert config.matmuls.poplar_options == {}


def test_missing_keys_are_kept_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = IPUConfig()
    config.io_tiles.num_io_tiles = 32
    plain = IPUConfig().to_dict()
    del plain["io_tiles.num_io_tiles"]
    config.from_dict(plain)
    assert config.io_tiles.num_io_tiles == 32
    assert [record.getMessage() for record in caplog.records] == [
        "io_tiles.num_io_tiles is missing from the dictionary; it keeps its value."
    ]


def test_complete_dictionary_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    IPUConfig().from_dict(IPUConfig().to_dict())
    assert not caplog.records


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"io_tiles.num_tiles": 1}, ValueError),
        ({"io_tiles": {}}, TypeError),
        ({"io_tiles.num_io_tiles": True}, TypeError),
        ({"scheduling.algorithm": 17}, TypeError),
        ({"scheduling.algorithm": True}, TypeError),
        ({"allow_recompute": 1}, TypeError),
    ],
)
def test_wrong_dictionary_changes_nothing(wrong: dict[str, Any], error: type[Exception]) -> None:
    config = IPUConfig()
    with pytest.raises(error):
        config.from_dict({**IPUConfig().to_dict(), "io_tiles.place_ops_on_io_tiles": True, **wrong})
    assert config.to_dict() == IPUConfig().to_dict()


def test_category_saves_its_own_part_under_full_names() -> None:
    config = IPUConfig()
    plain = config.norms.to_dict()
    assert set(plain) == {
        "norms.use_stable_statistics",
        "norms.experimental.distributed_batch_norm_replica_group_size",
    }
    config.norms.from_dict({**plain, "norms.use_stable_statistics": True})
    assert config.norms.use_stable_statistics is True
