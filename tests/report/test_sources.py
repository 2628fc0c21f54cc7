"""Names and lines of a report's operations lead to their place in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import OutOfTileMemory
from engine.report import Report
from ipu._internal.compiler.trace import trace_step
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import KITS, Kit


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    return KITS[request.param]


def sums(kit: Kit) -> tuple[Any, str]:
    """A layer named sums with a large result, and the line that makes its operation."""

    class Sums(kit.keras.layers.Layer):  # type: ignore[name-defined]
        def call(self, inputs: Any) -> Any:
            return tf.linalg.matmul(inputs, tf.ones((inputs.shape[1], 64 * inputs.shape[1])))

    return Sums(name="sums"), f"{__file__}:{Sums.call.__code__.co_firstlineno + 1}"


def test_operations_have_the_lines_that_made_them(kit: Kit) -> None:
    layers = kit.keras.layers
    summed, line = sums(kit)
    model = kit.ipu_model(lambda: kit.keras.Sequential([layers.Input((8,)), summed, layers.Dense(3, name="head")]))
    x, y = np.ones((16, 8), np.float32), np.zeros(16, np.int32)
    rows = ipu.profile(model, x, y, batch_size=16, mode="test", path=None).data["operations"]
    found = {row["name"].split(" ")[0]: row["source"] for row in rows}
    assert found["sums"] == line and found["head"] == ""


def test_what_does_not_fit_has_lines(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names lines, and so does its report."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 2
    config.configure_ipu_system()
    layers = kit.keras.layers
    summed, line = sums(kit)
    model = kit.ipu_model(lambda: kit.keras.Sequential([layers.Input((8,)), layers.Dense(512), summed]))
    with pytest.raises(OutOfTileMemory) as raised:
        ipu.profile(
            model, np.ones((1024, 8), np.float32), np.zeros(1024, np.int32), mode="test", path=tmp_path / "report.html"
        )
    rows = str(raised.value).split("The layers with most bytes")[1].split("What to change")[0].splitlines()
    assert any(" sums " in row and row.endswith(f", {line}") for row in rows)
    operations = Report.load(tmp_path / "report.json").data["operations"]
    assert line in {row["source"] for row in operations if row["layer"] == "sums"}


def test_operations_of_loops_and_called_functions_have_their_lines() -> None:
    def halved(a: tf.Tensor) -> tf.Tensor:
        return tf.tanh(a) / 2.0

    @tf.function
    def shifted(a: tf.Tensor) -> tf.Tensor:
        return tf.sin(a) + 1.0

    @tf.function
    def looping(a: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            a = tf.linalg.matmul(halved(a), a)
        return shifted(a)

    with IPUStrategy().scope():
        rows = ipu.profile(looping, tf.ones((8, 8)), path=None).data["operations"]
    first = {each: each.__code__.co_firstlineno for each in (halved, shifted.python_function, looping.python_function)}
    _, of_shifted, of_looping = first.values()
    found = {row["name"].split(" ")[-1]: row["source"] for row in rows if row["source"]}
    assert found["truediv"] == f"{__file__}:{first[halved] + 1}"
    assert found["MatMul"] == f"{__file__}:{of_looping + 3}" and found["add"] == f"{__file__}:{of_shifted + 2}"


def test_operations_of_loops_in_a_scope_have_their_lines() -> None:
    @tf.function
    def repeated(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("outer"):
            return ipu.loops.repeat(3, lambda a: tf.sin(a) * 2.0, [x])

    with IPUStrategy().scope():
        rows = ipu.profile(repeated, tf.ones((8, 8)), path=None).data["operations"]
    line = f"{__file__}:{repeated.python_function.__code__.co_firstlineno + 3}"
    assert line in {row["source"] for row in rows}


def test_scopes_that_tell_operations_apart_are_named() -> None:
    """The outermost scope, or else a model's name, is shown if the paths below it are equal."""

    def scaled(outermost: tuple[str, str]) -> tf.types.experimental.GenericFunction:
        @tf.function
        def function(values: tf.Tensor) -> tf.Tensor:
            for name in outermost:
                with tf.name_scope(f"{name}/dense"):
                    values = tf.linalg.matmul(values, values)
            return values

        return function

    found = []
    with IPUStrategy().scope():
        for outermost in (("one", "other"), ("one", "one")):
            rows = ipu.profile(scaled(outermost), tf.ones((4, 4)), path=None).data["operations"]
            found.append([(row["name"], row["layer"]) for row in rows if "MatMul" in row["name"]])
    assert found[0] == [("one/dense MatMul", "one/dense"), ("other/dense MatMul", "other/dense")]
    assert {layer.split("_")[0] for _, layer in found[1]} == {"dense"}


def test_traced_steps_keep_lines_and_no_stack_traces() -> None:
    """TensorFlow's stack trace of a freed graph may be that of another operation, which then cannot be made."""

    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(x) * 2.0

    with IPUStrategy().scope():
        traced = trace_step(step, [tf.TensorSpec([2])])
    assert {type(line) for line in traced.source_lines.values()} == {str}
    assert f"{__file__}:{step.__code__.co_firstlineno + 1}" in traced.source_lines.values()


def test_operations_of_a_saved_model_have_no_lines(tmp_path: Path) -> None:
    """TensorFlow keeps no stack traces with them."""
    module = tf.Module()
    module.scaled = tf.function(lambda x: tf.sin(x) * 2.0, input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    strategy = IPUStrategy()
    with strategy.scope():
        found = strategy.run(tf.function(lambda x: loaded.scaled(x)), [tf.constant([1.0, 2.0])])
    np.testing.assert_allclose(found, 2.0 * np.sin([1.0, 2.0]), rtol=1e-6)
