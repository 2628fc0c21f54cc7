"""The infer request of the Open Inference Protocol (KServe, version 2) with its binary tensor extension.

A JSON header, whose length `Inference-Header-Content-Length` gives, describes tensors whose bytes follow it: row-major,
little-endian, in the header's order. Tensors without `binary_data_size` have `data` in the header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
import orjson

from engine.serving import rest
from engine.serving.errors import RequestError
from engine.serving.manifest import STRING, Manifest, TensorManifest

HEADER_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {
    **{"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "bool": "BOOL"},
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    STRING: "BYTES",
}
LENGTH = struct.Struct("<I")
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Wanted:
    """An output that a request asks for, in binary or as JSON."""

    name: str
    in_binary: bool


def parse_infer(
    body: bytes, header_length: str | None, manifest: Manifest
) -> tuple[list[np.ndarray], tuple[str, list[Wanted]]]:
    """The input arrays of an infer request in the manifest's order; its id, and the outputs that it asks for.

    With a batch dimension the arrays have any common number of rows, at least one. Raises RequestError, 400, for a
    request that differs from the signature.
    """
    end = _header_end(body, header_length)
    request = rest.parsed(body[:end])
    given = _by_name(request.get("inputs"), [each.name for each in manifest.inputs], "inputs")
    left, arrays = memoryview(body)[end:], {}
    for name, fields in given.items():  # in the order of the request, as are their bytes
        tensor = next(each for each in manifest.inputs if each.name == name)
        shape = _shape(fields, tensor, manifest.batch_size)
        size = _parameters(fields).get("binary_data_size")
        if size is None:
            arrays[name] = _of_json(fields.get("data"), shape, tensor)
            continue
        if type(size) is not int or not 0 <= size <= len(left):
            raise RequestError(400, f"Expected binary_data_size of {name!r} up to {len(left)}. Received: {size!r:.80}")
        arrays[name], left = of_bytes(left[:size], shape, tensor), left[size:]
    if len(left):
        raise RequestError(400, f"Expected a body that ends with its tensors. Received: {len(left)} more bytes")
    found = [arrays[each.name] for each in manifest.inputs]
    rest.check_one_batch(found, manifest)
    return found, (_field(request, "id", str, ""), _wanted(request, manifest))


def format_infer(
    results: Sequence[np.ndarray], manifest: Manifest, model: tuple[str, int], asked: tuple[str, list[Wanted]]
) -> tuple[bytes, int | None]:
    """The response, and the length of its header where bytes follow it."""
    named = {tensor.name: (tensor, array) for tensor, array in zip(manifest.outputs, results, strict=True)}
    outputs, tail = [], []
    for wanted in asked[1]:
        tensor, array = named[wanted.name]
        content = to_bytes(array, tensor) if wanted.in_binary else None
        fields = {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": list(array.shape)}
        if content is None:
            outputs.append(orjson.dumps(fields)[:-1] + b',"data":' + _to_json(array, tensor) + b"}")
        else:
            outputs.append(orjson.dumps({**fields, "parameters": {"binary_data_size": len(content)}}))
            tail.append(content)
    start = {"model_name": model[0], "model_version": str(model[1]), **({"id": asked[0]} if asked[0] else {})}
    header = orjson.dumps(start)[:-1] + b',"outputs":[' + b",".join(outputs) + b"]}"
    return b"".join([header, *tail]), len(header) if tail else None


def _header_end(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    if header_length.isascii() and header_length.isdigit() and len(header_length) < 12:
        if int(header_length) <= len(body):
            return int(header_length)
    raise RequestError(400, f"Expected {HEADER_LENGTH} up to {len(body)}, the body's. Received: {header_length:.20}")


def _by_name(tensors: Any, names: Sequence[str], what: str) -> dict[str, dict[str, Any]]:
    """The descriptions of tensors by name. Raises RequestError unless there is exactly one for each."""
    if not isinstance(tensors, list) or not all(isinstance(each, dict) for each in tensors):
        raise RequestError(400, f"Expected {what} to be a list of objects")
    received = [each.get("name") for each in tensors]
    if len(received) != len(names) or set(map(str, received)) != set(names):
        raise RequestError(400, f"Expected {what} {list(names)}. Received: {received[:20]!r:.200}")
    return {str(each["name"]): each for each in tensors}


def _field(fields: Mapping[str, Any], name: str, kind: type[Kind], usual: Kind) -> Kind:
    """The value of an optional field. Raises RequestError, 400, for a value of another kind."""
    found = fields.get(name)
    if found is None:
        return usual
    if not isinstance(found, kind):
        raise RequestError(400, f"Expected {name} to be {rest.JSON_NAMES[kind]}. Received: {found!r:.80}")
    return found


def _parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    return _field(fields, "parameters", dict, {})


def _shape(fields: Mapping[str, Any], tensor: TensorManifest, batch_size: int | None) -> Any:
    shape, kind, received = fields.get("shape"), DATATYPES[tensor.dtype], fields.get("datatype")
    rest.check_shape(shape, tensor, batch_size)
    if received != kind:
        raise RequestError(400, f"Expected input {tensor.name!r} of datatype {kind}. Received: {received!r:.80}")
    return shape


def of_bytes(content: memoryview, shape: list[int], tensor: TensorManifest) -> np.ndarray:
    """The array of a tensor's bytes. Raises RequestError, 400, for bytes that do not fit."""
    if tensor.dtype == STRING:
        return _strings(content, shape, tensor)
    dtype = tensor.numpy_dtype
    if len(content) != prod(shape) * dtype.itemsize:
        raise RequestError(
            400,
            f"Expected {prod(shape) * dtype.itemsize} bytes of input {tensor.name!r}, {dtype.name}{shape}. "
            f"Received: {len(content)}",
        )
    raw = np.frombuffer(content, np.uint8)
    if dtype.kind == "b" and raw.size and raw.max() > 1:
        raise RequestError(400, f"Expected bytes 0 and 1 of input {tensor.name!r}. Received: {int(raw.max())}")
    return raw.view(dtype).reshape(shape)


def _strings(content: memoryview, shape: list[int], tensor: TensorManifest) -> np.ndarray:
    """Strings, each after the four bytes of its length."""
    found: list[bytes] = []
    at = 0
    while at + LENGTH.size <= len(content):
        (length,) = LENGTH.unpack_from(content, at)
        at += LENGTH.size + length
        found.append(bytes(content[at - length : at]))
    if at != len(content) or len(found) != prod(shape):
        raise RequestError(400, f"Expected {prod(shape)} strings with their lengths as input {tensor.name!r}")
    return rest.object_array(found, shape)


def _of_json(data: Any, shape: list[int], tensor: TensorManifest) -> np.ndarray:
    """An array of `data`: a flat list of its elements in row-major order, or nested lists of its shape."""
    leaves, _ = rest.flattened(data, tensor)
    if len(leaves) != prod(shape):
        raise RequestError(400, f"Expected {prod(shape)} elements of input {tensor.name!r}. Received: {len(leaves)}")
    return rest.array_of(leaves, shape, tensor)


def _wanted(request: Mapping[str, Any], manifest: Manifest) -> list[Wanted]:
    """The outputs that a request asks for; all where it names none."""
    usual = _field(_parameters(request), "binary_data_output", bool, False)
    names = [each.name for each in manifest.outputs]
    if not request.get("outputs"):
        return [Wanted(name, usual) for name in names]
    asked = request["outputs"]
    if not isinstance(asked, list) or not all(isinstance(e, dict) and e.get("name") in names for e in asked):
        raise RequestError(400, f"Expected outputs of the names {names}. Received: {asked!r:.200}")
    if len({each["name"] for each in asked}) != len(asked):
        raise RequestError(400, f"Expected different outputs. Received: {asked!r:.200}")
    return [Wanted(each["name"], _field(_parameters(each), "binary_data", bool, usual)) for each in asked]


def to_bytes(array: np.ndarray, tensor: TensorManifest) -> bytes:
    """The bytes of a tensor: numbers row-major, strings each after its length."""
    if tensor.dtype != STRING:
        return np.ascontiguousarray(array).tobytes()
    strings = [bytes(each) for each in array.reshape(-1).tolist()]
    return b"".join(LENGTH.pack(len(each)) + each for each in strings)


def _to_json(array: np.ndarray, tensor: TensorManifest) -> bytes:
    if tensor.dtype != STRING:
        return rest.numbers_encoded(array.reshape(-1))
    try:
        return orjson.dumps([bytes(each).decode() for each in array.reshape(-1).tolist()])
    except UnicodeDecodeError as error:
        raise RequestError(400, f"Output {tensor.name!r} is no text: ask for it with binary_data") from error
