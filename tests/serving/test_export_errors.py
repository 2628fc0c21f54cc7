"""Every documented error of an export, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from ipu import serving
from ipu.ipu_strategy import IPUStrategyV1
from tests.keras.helpers import Kit

SPEC = tf.TensorSpec((2, 3), tf.float32)
STRINGS = tf.TensorSpec((2,), tf.string)


def identity(x: Any) -> Any:
    return x


def total(x: Any, y: Any) -> Any:
    return x + y


def pair(x: Any) -> Any:
    return x, x


SINGLE_STEPS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "both": ({"predict_step_signature": [SPEC], "input_dataset": [SPEC]}, ValueError, "Received: both"),
    "neither": ({}, ValueError, "Received: none"),
    "a string": ({"predict_step_signature": "x"}, TypeError, "list or tuple of tf.TensorSpec"),
    "no spec": ({"predict_step_signature": [(2, 3)]}, TypeError, "tuple at 0"),
    "empty": ({"predict_step_signature": []}, ValueError, "an empty one"),
    "too long": ({"predict_step_signature": [SPEC, SPEC]}, ValueError, "each argument of the predict_step: x"),
    "too short": ({"predict_step": total, "predict_step_signature": [SPEC]}, ValueError, "predict_step: x, y"),
    "unknown": ({"predict_step_signature": [tf.TensorSpec((None, 3))]}, ValueError, "static shapes"),
    "no dataset": ({"input_dataset": [SPEC]}, TypeError, "tf.data.Dataset"),
    "no function": ({"predict_step": 3, "predict_step_signature": [SPEC]}, TypeError, "to be a function"),
    "no output": ({"predict_step": lambda x: None, "predict_step_signature": [SPEC]}, ValueError, "Received: none"),
    "no iterations": ({"iterations": 0, "predict_step_signature": [SPEC]}, ValueError, "Nearest legal value: 1"),
    "names": ({"predict_step_signature": [SPEC], "output_names": ["a", "b"]}, ValueError, "each of 1 outputs"),
    "name twice": (
        {"predict_step": pair, "predict_step_signature": [SPEC], "output_names": ["a", "a"]},
        ValueError,
        "a name of its own",
    ),
    "name of bytes": ({"predict_step_signature": [SPEC], "output_names": [b"a"]}, TypeError, "output_names"),
    "pre without signature": (
        {"predict_step_signature": [SPEC], "preprocessing_step": identity},
        ValueError,
        "signature of the preprocessing_step",
    ),
    "pre of another count": (
        {
            "predict_step_signature": [SPEC],
            "preprocessing_step": pair,
            "preprocessing_step_signature": [SPEC],
        },
        ValueError,
        "as many outputs of the preprocessing_step",
    ),
    "pre of another dtype": (
        {
            "predict_step_signature": [SPEC],
            "preprocessing_step": identity,
            "preprocessing_step_signature": [STRINGS],
        },
        ValueError,
        "Received: string",
    ),
    "post of another shape": (
        {
            "predict_step_signature": [SPEC],
            "postprocessing_step": identity,
            "postprocessing_step_signature": [tf.TensorSpec((2, 4))],
        },
        ValueError,
        r"Received: float32 \(2, 3\)",
    ),
    "post of another count": (
        {
            "predict_step_signature": [SPEC],
            "postprocessing_step": total,
            "postprocessing_step_signature": [SPEC, SPEC],
        },
        ValueError,
        "as many outputs of the predict_step",
    ),
    "a signature alone": (
        {"predict_step_signature": [SPEC], "postprocessing_step_signature": [SPEC]},
        ValueError,
        "only with a postprocessing_step",
    ),
}


@pytest.mark.parametrize("case", SINGLE_STEPS)
def test_single_steps(case: str, tmp_path: Path) -> None:
    arguments, error, message = SINGLE_STEPS[case]
    with pytest.raises(error, match=message):
        serving.export_single_step(
            **{"predict_step": identity, "export_dir": str(tmp_path / "1"), "iterations": 1, **arguments}
        )
    assert not list(tmp_path.iterdir())


def test_variables_that_are_updated(tmp_path: Path, strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        count = tf.Variable(0.0, name="count")
    with pytest.raises(ValueError, match="updates"):
        serving.export_single_step(lambda x: x + count.assign_add(1.0), str(tmp_path / "1"), 1, [SPEC])
    assert not list(tmp_path.iterdir())


def test_what_an_ipu_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError):
        serving.export_single_step(lambda x: tf.strings.length(tf.strings.as_string(x)), str(tmp_path / "1"), 1, [SPEC])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"computational_stages": [identity]}, ValueError, "at least two"),
        ({"computational_stages": identity}, TypeError, "list or tuple"),
        ({"computational_stages": [identity, 3]}, TypeError, "stage 1"),
        ({"iterations": 3}, ValueError, "2 or 4"),
        ({"device_mapping": [0]}, ValueError, "device_mapping"),
        ({"pipeline_schedule": "Grouped"}, TypeError, "pipeline_schedule"),
        ({"poplar_options": [1, 2]}, TypeError, "poplar_options"),
        ({"computational_stages": [pair, identity]}, ValueError, "stage 1 to take what stage 0 returned, 2"),
    ],
)
def test_pipelines(arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    given = {"computational_stages": [identity, identity], "iterations": 2, "predict_step_signature": [SPEC]}
    with pytest.raises(error, match=message):
        serving.export_pipeline(export_dir=str(tmp_path / "1"), **{**given, **arguments})
    assert not list(tmp_path.iterdir())


def test_keras_models(kit: Kit, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    directory = str(tmp_path / "1")
    with strategy.scope():
        dense = kit.keras.layers.Dense(2)

    def refused(make: Callable[[], Any], message: str, **arguments: Any) -> None:
        with strategy.scope():
            model = make()
        with pytest.raises(ValueError, match=message):
            model.export_for_ipu_serving(directory, **arguments)

    refused(kit.unbuilt, "a model that is built", batch_size=1)
    refused(kit.Subclassed, "a model that is built", batch_size=1)
    refused(kit.sequential, "a batch size")
    refused(kit.sequential, "batch_size to be an integer", batch_size=0)
    refused(kit.sequential, "batch_size to be an integer", batch_size=tf.constant([2]))
    refused(lambda: kit.keras.Sequential([kit.keras.Input((None, 2)), dense]), "static shape", batch_size=4)
    with pytest.raises(ValueError, match="not created inside an IPU strategy"):
        serving.export_keras(kit.sequential(), directory, batch_size=1)
    with pytest.raises(TypeError, match="a Keras model"):
        serving.export_keras(3, directory)
    assert not list(tmp_path.iterdir())


def test_iterations_of_a_pipelined_model(kit: Kit, tmp_path: Path, strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        model = kit.sequential()
        model.compile(steps_per_execution=3)
    model.set_pipeline_stage_assignment([0, 1])
    with pytest.raises(ValueError, match="steps_per_execution"):
        model.export_for_ipu_serving(str(tmp_path / "1"), batch_size=2)
    assert not list(tmp_path.iterdir())
