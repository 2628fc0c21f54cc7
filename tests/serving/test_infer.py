"""Infer requests of the Open Inference Protocol, with tensors in binary and in JSON, and refused ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.serving.errors import RequestError
from engine.serving.infer import format_infer, parse_infer
from engine.serving.manifest import Manifest, TensorManifest
from tests.files.programs import classifier, expected
from tests.serving.plain import export, serving
from tests.serving.raw import posted

BATCH = 4


def manifest(*tensors: TensorManifest) -> Manifest:
    return Manifest("p", 1, tensors, tensors, tensors, tensors)


X, COUNTS = TensorManifest("x", (BATCH, 3), "float32"), TensorManifest("i", (BATCH,), "int64")
TWO = manifest(X, COUNTS)
x, i = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([-1, 2**62])


def described(name: str, array: np.ndarray, datatype: str, **fields: Any) -> dict[str, Any]:
    given = {"name": name, "shape": list(array.shape), "datatype": datatype}
    return {**given, "parameters": {"binary_data_size": array.nbytes}, **fields}


def packed(inputs: list[dict[str, Any]], *arrays: np.ndarray, **fields: Any) -> tuple[bytes, str]:
    header = json.dumps({"inputs": inputs, **fields}).encode()
    return header + b"".join(each.tobytes() for each in arrays), str(len(header))


def test_tensors_follow_the_header_in_its_order() -> None:
    body, length = packed([described("i", i, "INT64"), described("x", x, "FP32")], i, x, id="7")
    found, (identity, wanted) = parse_infer(body, length, TWO)
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], i)
    assert identity == "7" and [(each.name, each.in_binary) for each in wanted] == [("x", False), ("i", False)]


@pytest.mark.parametrize("data", [[0, 1, 2, 3, 4, 5], [[0, 1, 2], [3, 4, 5]]])
def test_tensors_may_be_json(data: list[Any]) -> None:
    body, length = packed([described("x", x, "FP32", parameters={}, data=data), described("i", i, "INT64")], i)
    found, _ = parse_infer(body, length, TWO)
    np.testing.assert_array_equal(found[0], x)
    assert found[0].dtype == np.float32


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "bool", "int8", "uint64", "string"])
def test_what_comes_goes(name: str) -> None:
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else name
    datatype = {"float16": "FP16", "bfloat16": "BF16", "float64": "FP64", "string": "BYTES"}.get(name, name.upper())
    if name == "string":
        strings = [b"", b"\xff\x00a", "ä".encode()]
        content = b"".join(struct.pack("<I", len(each)) + each for each in strings)
    else:
        array = np.array([0, 1, 1]).astype(dtype)
        content = array.tobytes()
    one = manifest(TensorManifest("a", (BATCH,), name))
    fields = {"name": "a", "shape": [3], "datatype": datatype, "parameters": {"binary_data_size": len(content)}}
    header = json.dumps({"inputs": [fields], "parameters": {"binary_data_output": True}}).encode()
    found, asked = parse_infer(header + content, str(len(header)), one)
    answer, length = format_infer(found, one, ("m", 3), asked)
    assert length is not None and answer[length:] == content
    described = json.loads(answer[:length])
    assert described == {"model_name": "m", "model_version": "3", "outputs": [fields]}


WRONG: dict[str, tuple[Any, str]] = {
    "more bytes": (([described("x", x, "FP32"), described("i", i, "INT64")], x, i, b"1"), "Received: 1 more bytes"),
    "cut off": (([described("x", x, "FP32"), described("i", i, "INT64")], x), "binary_data_size of 'i' up to 0"),
    "too few": (([described("x", x, "FP32")], x), "Expected inputs ..x., .i.."),
    "twice": (([described("x", x, "FP32")] * 2, x, x), "Expected inputs ..x., .i.."),
    "another size": (
        ([described("x", x, "FP32", parameters={"binary_data_size": 20}), described("i", i, "INT64")], x, i),
        "Expected 24 bytes",
    ),
    "negative": (
        ([described("x", x, "FP32", parameters={"binary_data_size": -8}), described("i", i, "INT64")], x, i),
        "binary_data_size",
    ),
    "huge": (
        ([described("x", x, "FP32", shape=[2**70, 3]), described("i", i, "INT64")], x, i),
        "of shape ..any number., 3.",
    ),
    "no rows": (([described("x", x[:0], "FP32"), described("i", i[:0], "INT64")],), "of shape"),
    "a boolean": (([described("x", x, "FP32", shape=[True, 3]), described("i", i, "INT64")], x, i), "of shape"),
    "other rows": (([described("x", x[:1], "FP32"), described("i", i, "INT64")], x[:1], i), "one batch size"),
    "other type": (([described("x", x, "FP64"), described("i", i, "INT64")], x, i), "of datatype FP32"),
    "no objects": (([1, 2],), "a list of objects"),
    "wrong parameters": (([described("x", x, "FP32", parameters=[1]), described("i", i, "INT64")],), "parameters"),
    "wide integer": (
        ([described("x", x, "FP32"), described("i", i, "INT64", parameters={}, data=[1, 2**63])], x),
        "range of int64",
    ),
    "few data": (([described("x", x, "FP32"), described("i", i, "INT64", parameters={}, data=[1])], x), "2 elements"),
    "no data": (([described("x", x, "FP32"), described("i", i, "INT64", parameters={})], x), "2 elements"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_refused(kind: str) -> None:
    (inputs, *arrays), words = WRONG[kind]
    header = json.dumps({"inputs": inputs}).encode()
    body = header + b"".join(each if isinstance(each, bytes) else each.tobytes() for each in arrays)
    with pytest.raises(RequestError, match=words) as found:
        parse_infer(body, str(len(header)), TWO)
    assert found.value.status == 400


@pytest.mark.parametrize("length", ["-1", "1e3", "99999", "", "٣", "9" * 40])
def test_lengths_of_headers_are_checked(length: str) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length"):
        parse_infer(b"{}", length, TWO)


@pytest.mark.parametrize(
    "fields",
    [{"id": 3}, {"outputs": [{"name": "z"}]}, {"outputs": [{"name": "x"}] * 2}, {"outputs": 3}, {"parameters": 1}],
)
def test_what_is_asked_for_is_checked(fields: dict[str, Any]) -> None:
    body, length = packed([described("x", x, "FP32"), described("i", i, "INT64")], x, i, **fields)
    with pytest.raises(RequestError, match="Expected"):
        parse_infer(body, length, TWO)


def test_booleans_are_zero_and_one() -> None:
    body, length = packed([{**described("a", np.zeros(3, bool), "BOOL")}], np.array([0, 2, 1], np.uint8))
    with pytest.raises(RequestError, match="bytes 0 and 1"):
        parse_infer(body, length, manifest(TensorManifest("a", (BATCH,), "bool")))


def test_a_server_answers_in_binary(tmp_path: Path) -> None:
    file = export(tmp_path / "m" / "1", classifier(8))
    inputs = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    right = expected(file, inputs)
    body, length = packed([described("x", inputs, "FP32")], inputs, outputs=[{"name": "sums"}, {"name": "scores"}])
    body = body.replace(b'{"name": "sums"}', b'{"name": "sums", "parameters": {"binary_data": true}}')
    grown = str(int(length) + len(b', "parameters": {"binary_data": true}'))
    with serving(tmp_path / "m", tmp_path / "log") as (port, _):
        for path in ("/v2/models/m/infer", "/v2/models/m/versions/1/infer"):
            status, headers, content = posted(port, path, body, {"Inference-Header-Content-Length": grown})
            assert status == 200 and headers["content-type"] == "application/octet-stream", content
            end = int(headers["inference-header-content-length"])
            sums, scores = json.loads(content[:end])["outputs"]
            np.testing.assert_allclose(np.frombuffer(content[end:], np.float32), right["sums"], rtol=1e-5)
            np.testing.assert_allclose(np.reshape(scores["data"], scores["shape"]), right["scores"], rtol=1e-5)
            assert sums["shape"] == [3]
        assert posted(port, "/v2/models/m/infer", body, {})[0] == 400
        assert posted(port, "/v2/models/other/infer", body, {})[0] == 404
