"""Served models with steps before and after the program: strings and bytes in JSON."""

from __future__ import annotations

import base64
from pathlib import Path

import tensorflow as tf

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
