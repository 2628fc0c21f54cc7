"""Functional operators: the public names of `tensorflow.python.ipu.functional_ops`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.autograph.impl import api as autograph

from ipu._internal.compiler.outlining import call_outlined
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.conversion import converted
from ipu._internal.function_code import wraps
from ipu._internal.names.namespace import public_names

__all__ = ["outlined_function"]
__getattr__, __dir__ = public_names(__name__, __all__)


def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Any:
    """A function whose body is compiled once and shared by all its calls in a program (Python API, 18.14.2).

    Calls with arguments of the same shapes and dtypes share a body, and their gradients share another one. Equal
    functions share a body, too, such as those of two layers of one class with weights of the same shapes. Results are
    those of `func`. A call reads the variables that the function uses. A function with side effects or hidden state (an
    assignment, a queue, stateful random numbers) is inlined. The function is traced again if variables around it or
    global names that it uses have changed. Attributes of objects are read only in the first call of a trace. Outside of
    functions that run on the IPU, `func` itself is called.

    Args:
        func: a function that returns at least one tensor. Its positional arguments are tensors, or values that become
            tensors. Arguments by name may be other values. Without `func` the result is a decorator.
        unique_sharding: accepted; all shards are one device here.
        keep_input_layouts: accepted; arguments are never copied.
        name: the name of the body in reports; by default that of `func`.

    Returns:
        A function that calls `func` on the device, with the results of `func`.

    Raises:
        ValueError: `func` returns no tensor.
    """
    if func is None:
        return functools.partial(
            outlined_function, unique_sharding=unique_sharding, keep_input_layouts=keep_input_layouts, name=name
        )

    @autograph.autograph_artifact
    @wraps(func)
    def outlined(*args: Any, **kwargs: Any) -> Any:
        if tracing() and not in_symbolic_graph():
            return call_outlined(func, args, kwargs, name)
        return converted(func)(*args, **kwargs)

    return outlined


function = outlined_function
"""The name of earlier releases."""
