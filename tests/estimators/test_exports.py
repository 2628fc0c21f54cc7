"""Arguments of exports, and of evaluations and predictions of one checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python import ipu

from tests.estimators.models import ModeKeys, X, Y, dataset, regressed, regressor, repeated, run_config, v1


def receiver() -> Any:
    fed = v1.placeholder(tf.float32, [None, 3])
    return v1.estimator.export.TensorServingInputReceiver(fed, {"x": fed})


def supervised() -> Any:
    fed = {"x": v1.placeholder(tf.float32, [None, 3]), "y": v1.placeholder(tf.float32, [None, 1])}
    return v1.estimator.export.SupervisedInputReceiver(fed["x"], fed["y"], fed)


def attributes(folder: str) -> int:
    """The number of attributes in the graph of an export."""
    written = SavedModel.FromString((Path(folder) / "saved_model.pb").read_bytes())
    return sum(len(node.attr) for node in written.meta_graphs[0].graph_def.node)


class Listener(v1.train.CheckpointSaverListener):
    """The steps that are saved."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.saved.append(int(global_step_value))


def test_arguments_act(tmp_path: Path) -> None:
    listener = Listener()
    config = run_config(4, save_checkpoints_steps=4)
    estimator = ipu.ipu_estimator.IPUEstimator(regressor(), tmp_path / "model", config)
    estimator.train(repeated, steps=8, saving_listeners=[listener])
    assert listener.saved[-2:] == [4, 8]
    first, early, late = str(tmp_path / "model" / "model.ckpt-4"), regressed(4), regressed(8)

    for path, w in ((first, early), (None, late)):
        evaluated = estimator.evaluate(dataset, checkpoint_path=path)
        np.testing.assert_allclose(evaluated["loss"], np.mean((X @ w - Y) ** 2), rtol=1e-4)
        predicted = estimator.predict(lambda: dataset().map(lambda x, y: x), checkpoint_path=path)
        np.testing.assert_allclose(np.stack([each["y"] for each in predicted]), X @ w, rtol=1e-4, atol=1e-5)

    (tmp_path / "words.txt").write_text("a b")
    more = {"assets_extra": {"in/words.txt": str(tmp_path / "words.txt")}, "as_text": True, "checkpoint_path": first}
    base = str(tmp_path / "exported")
    folder = os.fsdecode(estimator.export_saved_model(base, receiver, **more))
    assert (Path(folder) / "assets.extra/in/words.txt").read_text() == "a b"
    written = text_format.Parse((Path(folder) / "saved_model.pbtxt").read_text(), SavedModel())
    assert list(written.meta_graphs[0].signature_def) == ["serving_default"]
    served = tf.saved_model.load(folder).signatures["serving_default"](tf.constant(X))["y"]
    np.testing.assert_allclose(served, X @ early, rtol=1e-4, atol=1e-5)

    folder = os.fsdecode(estimator.export_saved_model(base, supervised, experimental_mode=ModeKeys.EVAL))
    metrics = tf.saved_model.load(folder, tags=["eval"]).signatures["eval"](x=tf.constant(X), y=tf.constant(Y))
    np.testing.assert_allclose(metrics["loss"], np.mean((X @ late - Y) ** 2), rtol=1e-4)

    kept, stripped = (
        os.fsdecode(estimator.export_savedmodel(base, receiver, strip_default_attrs=strips)) for strips in (False, True)
    )
    assert attributes(stripped) < attributes(kept)
