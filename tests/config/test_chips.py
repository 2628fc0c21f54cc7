"""The chips that a configuration may name, and the options of the libraries that a cost report reads."""

from __future__ import annotations

import pytest
from tensorflow.python import ipu

from engine.errors import ConfigurationError
from ipu._internal.config.chip import configured_assumptions, configured_target


def configured(monkeypatch: pytest.MonkeyPatch, version: str, tiles: int = 0) -> ipu.config.IPUConfig:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config = ipu.config.IPUConfig()
    config.ipu_model.version, config.ipu_model.tiles_per_ipu = version, tiles
    return config


@pytest.mark.parametrize(
    ("version", "name", "tiles", "clock"),
    [
        ("ipu1", "ipu1", 1216, 1.6e9),
        ("ipu2", "ipu2", 1472, 1.33e9),
        ("ipu21", "c600", 1472, 1.5e9),
        ("c600", "c600", 1472, 1.5e9),
        ("bow", "bow", 1472, 1.85e9),
    ],
)
def test_every_chip_can_be_modelled(
    version: str, name: str, tiles: int, clock: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch, version).configure_ipu_system()
    chip = configured_target()
    assert (chip.name, chip.tiles, chip.clock_hz) == (name, tiles, clock)
    configured(monkeypatch, version, 8).configure_ipu_system()
    assert configured_target().tiles == 8


def test_the_version_of_a_device_is_its_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_POPLAR_FLAGS", raising=False)
    config = ipu.config.IPUConfig()
    config.device_connection.version = "ipu1"
    config.configure_ipu_system()
    assert configured_target().tiles == 1216


def test_another_chip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="'bow'.*Received: 'ipu3'"):
        configured(monkeypatch, "ipu3").configure_ipu_system()


def test_options_of_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(monkeypatch, "ipu2")
    config.matmuls.poplar_options = {"availableMemoryProportion": "0.1"}
    config.convolutions.poplar_options = {"availableMemoryProportion": "0.3", "partialsType": "half"}
    config.slices.poplar_options = {"availableMemoryProportion": 0.2}
    config.optimizations.triangular_solve_expander_block_size = 32
    config.io_tiles.num_io_tiles = 31
    config.io_tiles.place_ops_on_io_tiles = True
    config.ipu_model.compile_ipu_code = False
    config.configure_ipu_system()
    found = configured_assumptions()
    assert (found.partials_type, found.available_memory_proportion) == ("f32", 0.1)
    assert (found.convolution_partials_type, found.convolution_memory_proportion) == ("f16", 0.3)
    assert (found.slice_proportion(), found.triangular_solve_block, found.cholesky_block) == (0.2, 32, None)
    assert (found.io_tiles, found.overlapped_io, found.code_bytes) == (32, True, False)


@pytest.mark.parametrize("library", ["matmuls", "convolutions", "slices"])
@pytest.mark.parametrize("value", ["a lot", "-1", 0, None])
def test_an_option_that_cannot_be_read(library: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    config, before = configured(monkeypatch, "ipu2"), configured_assumptions()
    getattr(config, library).poplar_options = {"availableMemoryProportion": value}
    with pytest.raises(ConfigurationError, match=f"availableMemoryProportion above 0.*{value}"):
        config.configure_ipu_system()
    assert configured_assumptions() == before
