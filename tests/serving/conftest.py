"""Fixtures shared by the tests of exports and of the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.serving import server
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.interrupting import PATIENCE_SECONDS
from tests.keras.helpers import KITS, Kit
from tests.serving.helpers import PATIENT, Client, export_mlp, running


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Models of each Keras."""
    return KITS[request.param]


@pytest.fixture
def strategy() -> IPUStrategyV1:
    """A strategy for the only device."""
    return IPUStrategy()


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a client be slow to begin; tests about that set a limit."""
    monkeypatch.setattr(server, "HEADER_TIMEOUT", PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    """A directory with one version of an exported model of batch size 8, and the model itself."""
    directory = tmp_path_factory.mktemp("served") / "mlp"
    return directory, export_mlp(directory / "3")


@pytest.fixture(scope="module")
def client(mlp: tuple[Path, object]) -> Iterator[Client]:
    """A client of a server for `mlp` with small limits."""
    with running(mlp[0], replace(PATIENT, body_bytes=1 << 20)) as client:
        yield client
