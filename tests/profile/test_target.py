"""The table of chips: complete, sourced, and in agreement with published figures of whole chips."""

from __future__ import annotations

from dataclasses import fields

import pytest

from engine.errors import ConfigurationError
from engine.target import Target, quantities, target

CHIPS = ("ipu1", "ipu2", "bow", "c600")


def test_every_quantity_has_a_value_for_each_chip_and_a_source() -> None:
    rows = quantities()
    assert set(rows) == {field.name for field in fields(Target)} - {"name", "ipus"}
    for name, row in rows.items():
        assert set(row) == {*CHIPS, "source"}, name
        assert len(row["source"]) > 10, name


@pytest.mark.parametrize(
    ("chip", "megabytes", "teraflops"), [("ipu1", 304, 31.1), ("ipu2", 897, 62.6), ("bow", 897, 87.1)]
)
def test_whole_chips(chip: str, megabytes: int, teraflops: float) -> None:
    unit = target(chip)
    assert unit.tiles * unit.bytes_per_tile == pytest.approx(megabytes * 2**20, rel=0.005)
    assert unit.peak_flops("f32") == pytest.approx(teraflops * 1e12, rel=0.005)


@pytest.mark.parametrize(("chip", "rates"), [("ipu1", (64, 64, 16)), ("ipu2", (128, 64, 32)), ("bow", (128, 64, 32))])
def test_matrix_engine_rates(chip: str, rates: tuple[int, int, int]) -> None:
    unit = target(chip)
    asked = (("f16", "f16"), ("f16", "f32"), ("f32", "f32"))
    assert tuple(unit.amp_flops_per_cycle(*types) for types in asked) == rates


def test_fewer_tiles_and_several_ipus() -> None:
    small = target("ipu2", tiles=4, ipus=2)
    assert (small.tiles, small.ipus, small.bytes_per_tile) == (4, 2, 638_976)


def test_external_sync_follows_poplibs_formula() -> None:
    assert target("ipu2").external_sync_cycles(1) == 90
    assert target("ipu2").external_sync_cycles(4) == 80  # ceil(15 ns * 1.33 GHz * 2 hops * 2)


@pytest.mark.parametrize(
    ("arguments", "received", "advice"),
    [
        ({"name": "ipu3"}, "'ipu3'", "'ipu2'"),
        ({"name": "source"}, "'source'", "'ipu2'"),
        ({"name": "ipu2", "tiles": 1473}, "1473", "Use 1472"),
        ({"name": "ipu2", "tiles": 0}, "0", "Use 1,"),
        ({"name": "ipu2", "ipus": 0}, "0", "Use 1."),
    ],
)
def test_what_does_not_exist(arguments: dict, received: str, advice: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        target(**arguments)
    assert f"Received: {received}." in str(raised.value)
    assert advice in str(raised.value)
