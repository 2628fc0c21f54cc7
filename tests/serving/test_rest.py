"""The JSON of requests and responses: any value becomes arrays as the signature says, or is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.serving.errors import RequestError
from engine.serving.manifest import Manifest, TensorManifest
from engine.serving.rest import format_response, parse_request
from tests.exploring import seed

DTYPES = ("float32", "float16", "bfloat16", "int32", "uint8", "bool", "string")


def manifest(
    *inputs: TensorManifest, outputs: tuple[TensorManifest, ...] = (TensorManifest("y", (2,), "float32"),)
) -> Manifest:
    return Manifest("program", 1, inputs, outputs, inputs, outputs)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    st.just({"b64": "AA=="}),
    st.integers(-300, 300),
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner), max_leaves=20
)
bodies = st.fixed_dictionaries({}, optional={"instances": values, "inputs": values, "signature_name": values})


@settings(max_examples=100 if seed() is None else 400)
@given(body=bodies, dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=2), rank=st.integers(0, 2))
def test_any_json_is_arrays_or_refused(body: Any, dtypes: list[str], rank: int) -> None:
    described = manifest(
        *(TensorManifest(name, (2, *[1] * rank), dtype) for name, dtype in zip("xy", dtypes, strict=False))
    )
    try:
        arrays, in_rows = parse_request(encoded(body), described)
    except RequestError as error:
        assert error.status == 400 and len(error.message) < 1000
        return
    assert in_rows == ("instances" in body)
    assert len({len(array) for array in arrays}) == 1
    for array, tensor in zip(arrays, described.inputs, strict=True):
        assert array.dtype == (object if tensor.dtype == "string" else tensor.numpy_dtype)
        assert array.shape == (len(array), *tensor.shape[1:]) and len(array) > 0


@settings(max_examples=100 if seed() is None else 200)
@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        parse_request(body, manifest(TensorManifest("x", (2,), "float32")))


@given(
    rows=st.lists(st.floats(width=32), min_size=1, max_size=5),
    dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
)
def test_floats_survive_the_way_there_and_back(rows: list[float], dtype: str) -> None:
    described = manifest(TensorManifest("x", (2,), dtype), outputs=(TensorManifest("y", (2,), dtype),))
    with np.errstate(over="ignore"):
        array = np.array(rows, np.float32).astype(described.inputs[0].numpy_dtype)
    received, _ = parse_request(
        format_response([array], described, True).replace(b"predictions", b"instances"), described
    )
    np.testing.assert_array_equal(received[0], array)


@pytest.mark.parametrize(
    ("dtype", "value", "problem"),
    [
        ("uint8", [256], "in the range of uint8"),
        ("uint8", [-1], "in the range of uint8"),
        ("int32", [1.0], "Received: float"),
        ("int32", [True], "Received: a boolean"),
        ("bool", [1], "Received: int"),
        ("float16", [70000.0], "in the range of float16"),
        ("bfloat16", [3.4e38], "in the range of bfloat16"),
        ("float32", [10**400], "in the range of float32"),
        ("float32", ["1"], "Received: a string"),
        ("float32", [None], "Received: null"),
        ("float32", [[1.0]], r"Received: \[1, 1\]"),
        ("string", [1], "Received: a int"),
    ],
)
def test_values_that_a_dtype_cannot_hold(dtype: str, value: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        parse_request(encoded({"inputs": value}), manifest(TensorManifest("x", (2,), dtype)))


def test_numbers_beyond_a_double_are_no_infinities() -> None:
    described = manifest(TensorManifest("x", (2,), "float32"))
    with pytest.raises(RequestError, match="-1e400 is too large"):
        parse_request(b'{"inputs": [Infinity, -1e400]}', described)
    (received,), _ = parse_request(b'{"inputs": [Infinity, -Infinity]}', described)
    np.testing.assert_array_equal(received, [np.inf, -np.inf])


def test_one_long_string_among_many_takes_no_space() -> None:
    body = encoded({"inputs": ["a" * 100_000, *[""] * 1_000_000]})
    with pytest.raises(RequestError, match="a string"):
        parse_request(body, manifest(TensorManifest("x", (2,), "float32")))
