"""The graphs that TensorBoard's callback writes for models of a strategy."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.util.event_pb2 import Event

from ipu.ipu_strategy import IPUStrategy
from ipu.utils import reset_ipu_seed
from tests.keras.helpers import Kit, data

X, Y = data(16)


@pytest.fixture(autouse=True)
def no_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the package tensorboard, which scalars need and graphs do not."""
    for name in ("tensorboard", "tensorboard.summary", "tensorboard.summary.v2"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["tensorboard.summary.v2"].scalar = lambda *arguments, **named: None  # type: ignore[attr-defined]


def events(directory: Path) -> list[Event]:
    """Events that a run wrote for its training."""
    files = sorted(map(str, (directory / "train").glob("*")))
    return [Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]


def graphs(directory: Path) -> list[GraphDef]:
    """The graphs of training steps."""
    return [GraphDef.FromString(event.graph_def) for event in events(directory) if event.graph_def]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_write_graph_writes_the_step(kit: Kit, tmp_path: Path, asynchronous: bool) -> None:
    model = kit.ipu_model(kit.functional)
    model.set_asynchronous_callbacks(asynchronous)
    # tf_keras calls the callback after batches only if it has something else to write.
    callback = kit.keras.callbacks.TensorBoard(str(tmp_path), write_graph=True, write_steps_per_second=asynchronous)
    model.fit(X, Y, batch_size=8, epochs=2, callbacks=[callback], verbose=0)
    [graph] = graphs(tmp_path)
    operations = {node.op for node in graph.node}
    for function in graph.library.function:
        operations |= {node.op for node in function.node_def}
    assert {"MatMul", "ReadVariableOp"} <= operations
    names = " ".join(node.name for node in graph.node)
    assert all(layer.name in names for layer in model.layers[1:])
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert "keras" in tags  # the model's layers, Keras' other graph


def test_no_graph_without_write_graph(kit: Kit, tmp_path: Path) -> None:
    model = kit.ipu_model()
    model.fit(X, Y, verbose=0, callbacks=[kit.keras.callbacks.TensorBoard(str(tmp_path), write_graph=False)])
    assert not graphs(tmp_path)


def test_writing_the_graph_changes_no_results(kit: Kit, tmp_path: Path) -> None:
    histories = []
    for write in (False, True):
        kit.keras.utils.set_random_seed(3)
        reset_ipu_seed(3)
        with IPUStrategy().scope():
            layers = kit.keras.layers
            model = kit.keras.Sequential([layers.Input((5,)), layers.Dropout(0.5, seed=1), layers.Dense(3)])
        model.compile("sgd", "mse")
        callback = kit.keras.callbacks.TensorBoard(str(tmp_path / str(write)), write_graph=write)
        run = model.fit(X, X[:, :3], batch_size=8, epochs=2, callbacks=[callback], verbose=0, shuffle=False)
        histories.append(run.history["loss"])
    assert histories[0] == histories[1]
