"""Name scopes in bodies of functions, loops and branches, whose graphs begin without one.

Variables that TensorFlow 1 creates there, such as Adam's `beta1_power`, have their scope's name in checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from engine.ir.op_names import GRADIENT_SCOPE
from ipu._internal.function_code import wraps

F = TypeVar("F", bound=Callable[..., Any])


def in_present_scope(body: F) -> F:
    """Makes `body` run in the caller's name scope, so that names are those of a graph without functions."""
    scope = tf.get_current_name_scope()
    if not scope:
        return body

    @wraps(body)
    def scoped(*arguments: Any) -> Any:
        # Bodies of loops of tf.function begin in the loop's own scope, which is within this one.
        if f"{tf.get_current_name_scope()}/".startswith(f"{scope}/"):
            return body(*arguments)
        with tf.name_scope(f"{scope}/"):
            return body(*arguments)

    return cast(F, scoped)


@contextlib.contextmanager
def scope_of_control_flow(name: str | None, default: str) -> Iterator[tuple[str | None, Callable[[F], F]]]:
    """Opens the scope of a loop or a conditional; yields its name, and a function that makes bodies run in it.

    Only TensorFlow 1 has such scopes. The name "" is for loops and conditionals that programs do not contain.
    """
    if name == "" or control_flow_util.ENABLE_CONTROL_FLOW_V2:
        yield name, lambda body: body
        return
    with tf.name_scope(name or default) as scope:
        yield scope, in_present_scope


def outside_gradient_scopes() -> contextlib.AbstractContextManager[Any]:
    """The present scope without components such as `gradients`, which mark backward passes for the partition."""
    scope = tf.get_current_name_scope()
    others = GRADIENT_SCOPE.sub("", scope).strip("/")
    if others == scope:
        return contextlib.nullcontext()
    return tf.name_scope(f"{others}/" if others else "")
