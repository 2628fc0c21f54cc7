"""The programs of section 18.6, which configure a system before a session."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1

X = np.float32([[1, 2], [3, 4]])
DEVICES = {
    "one_ipu": [1],
    "two_devices": [2, 2],
    "devices_of_one_and_two": [1, 2],
    "select_0": [1],
    "select_8": [1],
    "select_0_1": [1, 1],
    "select_24_25": [4, 4],
    "select_0_to_3": [1, 1, 1, 1],
}
OPTIONS = {
    "compilation": ("compilation_poplar_options", {"debug.instrument": "true", "debug.allowOutOfMemory": "true"}),
    "connection": ("device_connection.type", ipu.config.DeviceConnectionType.ON_DEMAND),
    "convolution": ("convolutions.poplar_options", {"availableMemoryProportion": "0.1"}),
    "matmul": ("matmuls.poplar_options", {"availableMemoryProportion": "0.5"}),
    "optimization": ("optimizations.combine_embedding_lookups", True),
    "pooling": ("pooling.poplar_options", {"poolUseIntrospectiveMapping": "false"}),
    "report": ("profiling.execution_options", {"executionOptions": "false"}),
    "verification": ("use_verified_transfers", True),
}


def products() -> list[np.ndarray]:
    """Results of each device for X, in one session."""
    count = len(ipu.utils.get_ipu_config())
    results = []
    for ordinal in range(count):
        with ipu.scopes.ipu_scope(f"/device:IPU:{ordinal}"):
            results += ipu.ipu_compiler.compile(lambda x: x @ x + 1.0, [X])
    with v1.Session() as session:
        return session.run(results)


@pytest.mark.parametrize(("name", "ipus"), DEVICES.items())
def test_devices(name: str, ipus: list[int]) -> None:
    run(f"18_6_{name}", **vars(ipu.utils))
    assert [ipu.utils.get_num_of_ipus_in_device(f"/device:IPU:{i}") for i in range(len(ipus))] == ipus
    with pytest.raises(ValueError, match="IPU"):
        ipu.utils.get_num_of_ipus_in_device(f"/device:IPU:{len(ipus)}")
    computed = products()
    assert len(computed) == len(ipus)
    for result in computed:
        np.testing.assert_array_equal(result, X @ X + 1)


@pytest.mark.parametrize(("name", "attribute", "value"), [(name, *expected) for name, expected in OPTIONS.items()])
def test_options(name: str, attribute: str, value: Any) -> None:
    run(f"18_6_{name}", **vars(ipu.utils))
    (configured,) = ipu.utils.get_ipu_config()
    assert operator.attrgetter(attribute)(configured) == value
    np.testing.assert_array_equal(products(), [X @ X + 1])


def test_verification_keys() -> None:
    run("18_6_verification", **vars(ipu.utils))
    (configured,) = ipu.utils.get_ipu_config()
    keys = configured.verification_options
    assert (keys["input_parameters"]["key"], keys["infeeds"]["training_feed"]["key"], keys["outputs"]["key"]) == (
        1,
        2,
        0,
    )


def test_executables_are_written(tmp_path: Path) -> None:
    run("18_6_serialization", **vars(ipu.utils), FOLDER=str(tmp_path))
    for _ in range(2):  # the second program is the same
        np.testing.assert_array_equal(products(), [X @ X + 1])
        assert len(list(tmp_path.glob("*.poplar_exec"))) == 1
