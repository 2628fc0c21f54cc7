"""Handles of eager variables of one name: TensorFlow makes a kernel for each name, which takes 0.5 ms.

With one name for error messages, variables of one shape and dtype share that kernel; each still has its own handle.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.ops import gen_resource_variable_ops

from ipu._internal.thread_values import ThreadValue

NAME = "of the IPU"
"""Name in place of the variable's in TensorFlow's messages on a handle that has no value."""
_have_one_name = ThreadValue(False)
_var_handle_op = gen_resource_variable_ops.var_handle_op


def handles_of_one_name() -> AbstractContextManager[bool]:
    """Gives this thread's eager variables handles of one name, while the context is open."""
    return _have_one_name.replaced_by(True)


def _handle(*arguments: Any, **named: Any) -> Any:
    if _have_one_name.value and "debug_name" in named and context.executing_eagerly():
        named["debug_name"] = NAME
    return _var_handle_op(*arguments, **named)


gen_resource_variable_ops.var_handle_op = _handle
