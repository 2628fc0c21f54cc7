"""Precompiled operations: libraries that build Poplar graphs, which this project cannot run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from engine.errors import UnsupportedOperation
from ipu._internal.custom_ops.library import check_attributes, declared_outputs, not_found
from ipu._internal.types import TensorLike


def precompiled_user_op(
    inputs: Sequence[TensorLike],
    library_path: str,
    gp_path: str = "",
    outs: Mapping[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> NoReturn:
    """Refuse a function that adds vertices to a Poplar graph (Python API, 18.14.1): there is no Poplar here.

    Arguments are checked as documented, so a program learns first of a library that does not exist. A vertex written
    in Python, `ipu.custom_ops.vertex`, runs in its place; docs/custom_vertices.md shows one with its gradient.

    Args:
        inputs: the tensors of the operation; not read.
        library_path: the path of the shared library, which must exist; it is not opened.
        gp_path: the path of a codelet file; not read.
        outs: None for no outputs, or {"output_types": [dtype, ...], "output_shapes": [shape, ...]}, equally many.
        name: the name of the operation, for the error.
        op_name: the prefix of the library's functions, for the error.
        separate_gradients: whether each input has a gradient operation of its own; not read.
        inputs_with_gradients: the positions of inputs with gradients; not read.
        attributes: a string for the library's function, or None.
        gradient_attributes: a string for that of the gradient, or None.

    Returns:
        Nothing: every call raises.

    Raises:
        ConfigurationError: attributes that are no strings, `outs` without types and shapes.
        tf.errors.NotFoundError: a library that does not exist.
        UnsupportedOperation: any other call.
    """
    check_attributes(attributes=attributes, gradient_attributes=gradient_attributes)
    declared_outputs(outs)
    if not os.path.exists(library_path):
        raise not_found(library_path, "no such file")
    raise UnsupportedOperation(
        f"Expected operations that run without Poplar. Received: {op_name!r} of {library_path!r} for {name!r}, which "
        f"adds compiled vertices to a Poplar graph, and runs only on an IPU. Write the vertex in Python with "
        f"ipu.custom_ops.vertex, a function of its slices that Numba compiles (docs/custom_vertices.md); or call a C++ "
        f"function of the host with ipu.custom_ops.cpu_user_operation."
    )
