"""Functions of custom operations: C++ ones in shared libraries, by the documented ABI, and Python ones.

A C++ function has the symbol of its name and the signature

    extern "C" void Callback(const std::vector<const void *> &data, const std::vector<uint32_t> &number_of_elements,
                             const std::vector<void *> &outputs, const std::string &attributes,
                             const std::string &name)

whose five references are addresses in the ABI of Linux, of vectors and strings in the layout of libstdc++: three
pointers, or a pointer and two sizes. The function only reads them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError

Function = Callable[..., Sequence[Any]]


class _Vector(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("begin", "end", "end_of_storage"))

    @classmethod
    def of(cls, array: np.ndarray) -> _Vector:
        """A std::vector in the memory of an array."""
        begin = array.ctypes.data
        return cls(begin, begin + array.nbytes, begin + array.nbytes)


class _String(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t * 2))

    @classmethod
    def of(cls, text: str) -> _String:
        """A std::string on the heap."""
        data = text.encode()
        return cls(data, len(data), (ctypes.c_size_t * 2)(len(data), 0))


def function_of(
    source: Any, op_name: str, outputs: Sequence[tf.TensorSpec], attributes: str | None, name: str
) -> Function:
    """Function `op_name` of a library's path, a Python object or a callable, from arrays to arrays of the outputs.

    Raises tf.errors.NotFoundError for a library that cannot be loaded, ConfigurationError for one without the function.
    """
    if not isinstance(source, str | os.PathLike):
        found = getattr(source, op_name, None) or (
            source if callable(source) and not op_name.endswith("_grad") else None
        )
        if found is None:
            raise _missing(op_name, source)
        given = {} if attributes is None else {"attributes": attributes}
        return lambda *arrays: _listed(found(*arrays, **given), outputs)
    try:
        function = getattr(opened(source), op_name)
    except AttributeError:
        raise _missing(op_name, source) from None
    function.restype, function.argtypes = None, [ctypes.c_void_p] * 5

    def call(*arrays: np.ndarray) -> Sequence[np.ndarray]:
        results = [np.zeros(each.shape.as_list(), each.dtype.as_numpy_dtype) for each in outputs]
        pointers = [np.array([each.ctypes.data for each in side], np.uintp) for side in (arrays, results)]
        sizes = np.array([each.size for each in arrays], np.uint32)
        vectors = [_Vector.of(each) for each in (pointers[0], sizes, pointers[1])]
        arguments = [*vectors, _String.of(attributes or ""), _String.of(name)]
        function(*map(ctypes.addressof, arguments))
        return results

    return call


def _listed(returned: Any, outputs: Sequence[tf.TensorSpec]) -> Sequence[np.ndarray]:
    """The results of a Python function, as arrays of the declared dtypes."""
    listed = [] if returned is None else list(returned) if isinstance(returned, list | tuple) else [returned]
    if len(listed) != len(outputs):
        raise ConfigurationError(f"Expected {len(outputs)} arrays, as outs declares. Received: {len(listed)}.")
    return [np.asarray(each, spec.dtype.as_numpy_dtype) for each, spec in zip(listed, outputs, strict=True)]


def _missing(op_name: str, source: Any) -> ConfigurationError:
    return ConfigurationError(
        f'Expected a function {op_name!r} in {source!r}. Received: none. Export it with extern "C" from a library, or '
        f"define it in the Python object; a gradient has the name of its operation and _grad."
    )


def check_attributes(**attributes: Any) -> None:
    """Raises ConfigurationError, a ValueError, for attributes that are neither None nor text."""
    for name, value in attributes.items():
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(
                f"Expected {name} to be a string, or None. Received: {type(value).__name__}. Serialise it: json.dumps."
            )


def opened(library_path: str | os.PathLike[str]) -> ctypes.CDLL:
    """The library. Raises tf.errors.NotFoundError for one that does not exist or cannot be loaded."""
    path = os.fspath(library_path)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise not_found(path, str(error)) from error


def not_found(path: str, received: str) -> tf.errors.NotFoundError:
    """The error for a library that is not there."""
    return tf.errors.NotFoundError(None, None, f"Expected a shared library at {path!r}. Received: {received}.")


def declared_outputs(outs: Mapping[str, Any] | None) -> list[tf.TensorSpec]:
    """The outputs that `outs` declares, none where it is None.

    Raises ConfigurationError for anything but as many output_types as output_shapes.
    """
    if outs is None:
        return []
    types, shapes = (outs.get(key) for key in ("output_types", "output_shapes"))
    if not isinstance(types, Sequence) or not isinstance(shapes, Sequence) or len(types) != len(shapes):
        raise ConfigurationError(
            f"Expected outs to be {{'output_types': [...], 'output_shapes': [...]}} of the same length. "
            f"Received: {outs}."
        )
    return [tf.TensorSpec(shape, dtype) for dtype, shape in zip(types, shapes, strict=True)]
