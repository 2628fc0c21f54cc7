"""The JSON of TensorFlow Serving's REST predict API: requests to arrays, arrays to responses, metadata."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from engine.serving.errors import RequestError
from engine.serving.manifest import NUMPY_DTYPES, STRING, Manifest, TensorManifest

SIGNATURE = "serving_default"
BASE64 = "b64"
MOST_AT_ONCE = 1 << 14
"""Most numbers that are converted to text in one call."""
TYPE_NAMES = {name: f"DT_{name.upper()}" for name in (*NUMPY_DTYPES, STRING)} | {
    **{"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"},
}
JSON_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


def parse_request(body: bytes, manifest: Manifest) -> tuple[list[np.ndarray], bool]:
    """The input arrays of a predict request in the manifest's order, and whether it is in row format.

    With a batch dimension the arrays have any common number of rows, at least one. Raises RequestError, 400, for a
    request that differs from the signature.
    """
    request = parsed(body)
    name = request.get("signature_name") or SIGNATURE
    if name != SIGNATURE:
        raise RequestError(400, f'Serving signature name: "{str(name)[:100]}" not found in signature def')
    given = [key for key in ("instances", "inputs") if key in request]
    if len(given) != 1:
        problem = (
            "Missing 'inputs' or 'instances' key" if not given else "Only one of 'inputs' and 'instances' is legal"
        )
        raise RequestError(400, f"Failed to process request: {problem}")
    in_rows = given == ["instances"]
    columns = (_from_rows if in_rows else _from_columns)(request[given[0]], manifest)
    arrays = [_array(columns[tensor.name], tensor, manifest.batch_size) for tensor in manifest.inputs]
    check_one_batch(arrays, manifest)
    return arrays, in_rows


def format_response(results: Sequence[np.ndarray], manifest: Manifest, in_rows: bool) -> bytes:
    """The response: `predictions` with an element for each row, or `outputs` with a value for each output."""
    named = list(zip(manifest.outputs, results, strict=True))
    if len(named) == 1:
        merged = _encoded(named[0][1], named[0][0])
    elif in_rows:
        rows = range(len(results[0]))
        merged = b"[" + b",".join(_object((tensor, array[row]) for tensor, array in named) for row in rows) + b"]"
    else:
        merged = _object(named)
    return b'{"%s":%s}' % (b"predictions" if in_rows else b"outputs", merged)


def _object(named: Iterable[tuple[TensorManifest, Any]]) -> bytes:
    """The JSON of an object of outputs by name."""
    return b"{" + b",".join(orjson.dumps(each.name) + b":" + _encoded(value, each) for each, value in named) + b"}"


def _encoded(value: Any, tensor: TensorManifest) -> bytes:
    """The JSON of an array, or of one of its rows."""
    if tensor.dtype != STRING:
        return numbers_encoded(np.asarray(value))
    strings = value.tolist() if isinstance(value, np.ndarray) else value
    return orjson.dumps(_plain_strings(strings, tensor.name.endswith("_bytes")))


def numbers_encoded(array: np.ndarray) -> bytes:
    """The JSON of numbers, a few at a time, as each call keeps the interpreter from other threads."""
    if array.size <= MOST_AT_ONCE or not array.ndim:
        return _few_encoded(array)
    rows = MOST_AT_ONCE * len(array) // array.size
    if not rows:
        return b"[" + b",".join(map(numbers_encoded, array)) + b"]"
    parts = (_few_encoded(array[begin : begin + rows])[1:-1] for begin in range(0, len(array), rows))
    return b"[" + b",".join(parts) + b"]"


def _few_encoded(array: np.ndarray) -> bytes:
    is_float = array.dtype.kind not in "biu"
    values = array.astype(np.float64) if is_float else array
    if is_float and not np.isfinite(values).all():
        return json.dumps(values.tolist()).encode()  # orjson writes null for NaN and Infinity
    if not array.ndim:
        return orjson.dumps(values.item())
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def metadata(name: str, version: int, manifest: Manifest) -> dict[str, Any]:
    """Response of the metadata endpoint; a batch dimension has size -1, any."""
    signature = {
        "inputs": {tensor.name: _tensor_info(tensor, manifest) for tensor in manifest.inputs},
        "outputs": {tensor.name: _tensor_info(tensor, manifest) for tensor in manifest.outputs},
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def _tensor_info(tensor: TensorManifest, manifest: Manifest) -> dict[str, Any]:
    sizes = list(tensor.shape) if manifest.batch_size is None else [-1, *tensor.shape[1:]]
    shape = {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": False}
    return {"dtype": TYPE_NAMES[tensor.dtype], "tensor_shape": shape, "name": tensor.name}


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a request's body. Raises RequestError, 400, for anything else."""
    try:
        request = orjson.loads(body)
    except ValueError:
        request = _parsed_by_python(body)
    if not isinstance(request, dict):
        raise RequestError(400, "Failed to process request: the body is no JSON object")
    return request


def _parsed_by_python(body: bytes) -> Any:
    """Parses JSON that orjson refuses: NaN and Infinity, as TensorFlow Serving has them, and lone surrogates.

    A function in Python for floats lets other threads run meanwhile. Raises RequestError.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_float=_in_range)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"JSON Parse error: {str(error)[:200]}") from error


def _in_range(number: str) -> float:
    if math.isinf(float(number)):
        raise ValueError(f"{number} is too large for a double")
    return float(number)


def _from_rows(instances: Any, manifest: Manifest) -> Mapping[str, Any]:
    if manifest.batch_size is None:
        raise RequestError(400, "Expected 'inputs': this model has no batch dimension, so there are no 'instances'")
    if not isinstance(instances, list) or not instances:
        raise RequestError(400, "Failed to process request: 'instances' must be a non-empty list")
    names = [tensor.name for tensor in manifest.inputs]
    if len(names) == 1 and not _is_named(instances[0]):
        return {names[0]: instances}
    for number, instance in enumerate(instances):
        _check_names(instance, names, f"instance {number}")
    return {name: [instance[name] for instance in instances] for name in names}


def _from_columns(inputs: Any, manifest: Manifest) -> Mapping[str, Any]:
    names = [tensor.name for tensor in manifest.inputs]
    if len(names) == 1 and not _is_named(inputs):
        return {names[0]: inputs}
    _check_names(inputs, names, "'inputs'")
    return inputs


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and set(value) != {BASE64}


def _check_names(value: Any, names: Sequence[str], what: str) -> None:
    if not isinstance(value, dict) or set(value) != set(names):
        received = sorted(map(str, value))[:20] if isinstance(value, dict) else type(value).__name__
        raise RequestError(400, f"Expected {what} to be an object with the inputs {list(names)}. Received: {received}")


def _array(value: Any, tensor: TensorManifest, batch_size: int | None) -> np.ndarray:
    leaves, shape = flattened(value, tensor)
    check_shape(shape, tensor, batch_size)
    return array_of(leaves, shape, tensor)


def check_shape(shape: Any, tensor: TensorManifest, batch_size: int | None) -> None:
    """Raises RequestError, 400, for a shape other than the signature's, in which only a batch may have another size."""
    start = 0 if batch_size is None else 1
    is_shape = isinstance(shape, list) and all(type(each) is int and 0 <= each < 1 << 40 for each in shape)
    fits = is_shape and len(shape) == len(tensor.shape) and shape[start:] == list(tensor.shape[start:])
    if not fits or 0 in shape[:start]:
        expected = list(tensor.shape) if batch_size is None else ["any number", *tensor.shape[1:]]
        raise RequestError(400, f"Expected input {tensor.name!r} of shape {expected}. Received: {shape!r:.80}")


def check_one_batch(arrays: Sequence[np.ndarray], manifest: Manifest) -> None:
    """Raises RequestError, 400, for inputs with different numbers of rows."""
    if manifest.batch_size is not None and len({len(array) for array in arrays}) > 1:
        sizes = {tensor.name: len(array) for tensor, array in zip(manifest.inputs, arrays, strict=True)}
        raise RequestError(400, f"Expected inputs with one batch size. Received: {sizes}")


def flattened(value: Any, tensor: TensorManifest) -> tuple[list[Any], list[int]]:
    """The leaves of nested lists, and the length of the lists of each level."""
    level, shape = [value], list[int]()
    while set(map(type, level)) == {list} and len(shape) <= len(tensor.shape):
        lengths = set(map(len, level))
        if len(lengths) > 1:
            some = sorted(lengths)[:5]
            raise RequestError(400, f"Expected input {tensor.name!r} to be regular. Received: lists of lengths {some}")
        shape.append(lengths.pop())
        level = list(chain.from_iterable(level))
    return level, shape


def array_of(leaves: list[Any], shape: Sequence[int], tensor: TensorManifest) -> np.ndarray:
    """An array of numbers or strings. Raises RequestError, 400, for others than the signature's."""
    if tensor.dtype != STRING:
        return _numbers(leaves, tensor).reshape(shape)
    return object_array([_bytes_of(each, tensor) for each in leaves], shape)


def object_array(strings: list[bytes], shape: Sequence[int]) -> np.ndarray:
    """An array of strings."""
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(shape)


_KINDS: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}}


def _numbers(leaves: list[Any], tensor: TensorManifest) -> np.ndarray:
    """An array of the signature's dtype, of numbers of its kind and in its range; floats accept integers, too."""
    dtype = tensor.numpy_dtype
    # Check before NumPy converts: it parses strings, and allocates the longest string's size for each of them.
    kinds = set(map(type, leaves))
    allowed = _KINDS.get(dtype.kind, {int, float})
    if not kinds <= allowed:
        received = ", ".join(sorted(JSON_NAMES.get(kind, kind.__name__) for kind in kinds - allowed))
        raise RequestError(400, f"Expected input {tensor.name!r} of {dtype.name}. Received: {received}")
    try:
        if dtype.kind in "biu":
            return np.array(leaves, dtype)
        wide = np.array(leaves, np.float64)
    except OverflowError as error:
        raise _out_of_range(tensor) from error
    with np.errstate(over="ignore"):
        cast = wide.astype(dtype)
    if np.any(np.isinf(cast.astype(np.float64)) & np.isfinite(wide)):
        raise _out_of_range(tensor)
    return cast


def _out_of_range(tensor: TensorManifest) -> RequestError:
    return RequestError(400, f"Expected input {tensor.name!r} in the range of {tensor.dtype}. Received: other numbers")


def _bytes_of(value: Any, tensor: TensorManifest) -> bytes:
    """The bytes of a string, or of an object with base64. Raises RequestError, 400, for anything else."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and set(value) == {BASE64} and isinstance(value[BASE64], str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except (binascii.Error, ValueError) as error:
            raise RequestError(400, f"Input {tensor.name!r}: b64 does not decode: {error}") from error
    raise RequestError(
        400, f"Expected input {tensor.name!r} of strings or {{'b64': ...}}. Received: a {type(value).__name__}"
    )


def _plain_strings(value: Any, as_bytes: bool) -> Any:
    """Strings for JSON; as in TensorFlow Serving, an output whose name ends in `_bytes` is in base64."""
    if isinstance(value, list):
        return [_plain_strings(each, as_bytes) for each in value]
    if not as_bytes:
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return {BASE64: base64.b64encode(value).decode("ascii")}
