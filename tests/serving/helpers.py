"""A small exported model, a server in a thread, and a client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from engine.serving.application import Application
from engine.serving.limits import ClientLimits
from engine.serving.servable import open_servable, reloading
from engine.serving.server import bound_socket, server
from ipu._internal.serving.host_steps import with_steps
from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import PATIENCE_SECONDS, wait_for

PATIENT = ClientLimits(read_timeout=PATIENCE_SECONDS, predict_timeout=PATIENCE_SECONDS)
FEATURES = 5
BATCH = 8


def mlp_model() -> Any:
    """Five features, six hidden units, three classes."""
    with IPUStrategy().scope():
        layers = keras.layers
        model = keras.Sequential(
            [layers.Input((FEATURES,), name="features"), layers.Dense(6, "relu"), layers.Dense(3, "softmax")]
        )
        model.compile()
    return model


def export_mlp(directory: Path, batch_size: int = BATCH) -> Any:
    """Exports `mlp_model`, and returns it."""
    model = mlp_model()
    model.export_for_ipu_serving(str(directory), batch_size=batch_size)
    return model


def samples(count: int, seed: int = 0) -> np.ndarray:
    """Features float32 [count, 5]."""
    return np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)


class Client:
    """Speaks TensorFlow Serving's REST API."""

    def __init__(self, port: int, name: str = "mlp") -> None:
        self.port = port
        self.root = f"/v1/models/{name}"

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer on a new connection; bodies other than bytes are sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            sent = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
            connection.request(method, path, sent, headers or {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def predict(self, body: Any) -> tuple[int, Any]:
        """The answer to a predict request for the newest version."""
        return self.request("POST", f"{self.root}:predict", body)

    def name_and_version(self) -> tuple[str, str]:
        """Name and version in the metadata."""
        specification = self.request("GET", f"{self.root}/metadata")[1]["model_spec"]
        return specification["name"], specification["version"]


@contextlib.contextmanager
def running(
    directory: Path,
    limits: ClientLimits | None = None,
    name: str | None = None,
    most_connections: int = 1000,
    **tls: str,
) -> Iterator[Client]:
    """A server for a directory, in a thread, with a client; at the end the server stops in order."""
    servable = open_servable(directory, name, with_steps)
    listener = bound_socket("127.0.0.1", 0)
    reload = reloading(directory, name, with_steps)
    made = server(Application(servable, limits or PATIENT, reload), most_connections, **tls)
    made.config.timeout_graceful_shutdown = int(PATIENCE_SECONDS)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert wait_for(lambda: made.started or not thread.is_alive()) and made.started
        yield Client(listener.getsockname()[1], servable.name)
    finally:
        made.should_exit = True
        thread.join(2 * PATIENCE_SECONDS)
        listener.close()
    assert not thread.is_alive()
