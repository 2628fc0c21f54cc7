"""Served functions: strings and bytes in JSON of steps before and after a program, and dtypes that JSON lacks."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.serving.servable import open_servable
from ipu import serving
from tests.serving.helpers import running


def test_strings_in_and_out(tmp_path: Path) -> None:
    def lengths(text: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.strings.length(text), tf.float32)

    def names(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return tf.strings.as_string(tf.cast(x, tf.int32)), tf.fill([4], b"\xff\x00"), x

    serving.export_single_step(
        lambda x: 2.0 * x,
        str(tmp_path / "text" / "1"),
        1,
        [tf.TensorSpec((4,), tf.float32)],
        output_names=["name", "raw_bytes", "number"],
        preprocessing_step=lengths,
        preprocessing_step_signature=[tf.TensorSpec((4,), tf.string)],
        postprocessing_step=names,
    )
    with running(tmp_path / "text") as client:
        encoded = {"b64": base64.b64encode(b"\x00\xff\x01").decode()}
        status, answer = client.predict({"instances": ["a", {"text": "ab"}["text"], encoded]})
        raw = {"b64": base64.b64encode(b"\xff\x00").decode()}
        rows = [{"name": str(2 * n), "raw_bytes": raw, "number": 2.0 * n} for n in (1, 2, 3)]
        assert (status, answer) == (200, {"predictions": rows})
        status, answer = client.predict({"inputs": {"text": ["a", "abcd", "", "é", "x"]}})
        assert status == 200
        assert answer["outputs"]["number"] == [2.0, 8.0, 0.0, 4.0, 2.0]
        for wrong in ([1.0], [["a"]], [{"b64": "no base64!"}], [{"b64": 3}], [None], "a", [["a"], ["b", "c"]]):
            status, answer = client.predict({"instances": wrong})
            assert (status, list(answer)) == (400, ["error"]), wrong


def test_programs_without_a_batch_take_whole_inputs(tmp_path: Path) -> None:
    serving.export_single_step(
        lambda x, y: tf.reduce_sum(x * y), str(tmp_path / "dot"), 1, [tf.TensorSpec((3,)), tf.TensorSpec(())]
    )
    with running(tmp_path / "dot") as client:
        assert client.name_and_version() == ("dot", "1")
        status, answer = client.predict({"inputs": {"x": [1.0, 2.0, 3.0], "y": 2}})
        assert (status, answer) == (200, {"outputs": 12.0})
        for wrong in ({"inputs": {"x": [1.0, 2.0], "y": 2.0}}, {"instances": [{"x": [1.0, 2.0, 3.0], "y": 2.0}]}):
            assert client.predict(wrong)[0] == 400


def test_bfloat16_is_served(tmp_path: Path) -> None:
    serving.export_single_step(lambda x: 2 * x, str(tmp_path / "twice"), 1, [tf.TensorSpec((2,), tf.bfloat16)])
    with running(tmp_path / "twice") as client:
        assert client.predict({"instances": [1, 3.14159, -7.0]}) == (200, {"predictions": [2.0, 6.28125, -14.0]})


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    """JSON has no complex numbers: a response contained only the real parts."""
    spectrum = lambda x: tf.signal.fft(tf.complex(x, x))  # noqa: E731
    for name, function, dtype in (("outputs", spectrum, tf.float32), ("inputs", tf.math.real, tf.complex64)):
        serving.export_single_step(function, str(tmp_path / name), 1, [tf.TensorSpec((2, 4), dtype)])
        with pytest.raises(ConfigurationError, match=f"Expected {name} that JSON has.*complex64"):
            open_servable(tmp_path / name)
