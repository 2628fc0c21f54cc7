"""`repeat` and `while_loop`: loops that run on the device without returning to the host (section 18.8)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.loop_context import loop_body
from ipu._internal.conversion import converted
from ipu._internal.graphs.lost_updates import check_updates
from ipu._internal.name_scopes import in_present_scope
from ipu._internal.names.namespace import public_names
from ipu._internal.queues.elements import arguments_of
from ipu._internal.queues.signatures import accepts, requirement
from ipu._internal.types import Nest, TensorLike
from ipu.ipu_infeed_queue import IPUInfeedQueue

__all__ = ["repeat", "while_loop"]
__getattr__, __dir__ = public_names(__name__, __all__)


def repeat(
    n: TensorLike,
    body: Callable[..., Any],
    inputs: Nest = None,
    infeed_queue: IPUInfeedQueue | None = None,
    use_while_v1: bool = True,
) -> Any:
    """A loop of `n` iterations; the arguments of `body` are the loop's tensors, then an element of the infeed.

    Args:
        n: the number of iterations: an integer or an int32 scalar.
        body: takes the loop's tensors and returns their new values, of the same dtypes and shapes, then operations if
            any. An infeed element that is a dict with string keys is passed by name, a tuple as several arguments, and
            anything else as one.
        inputs: the initial values: a list of tensors, one tensor, or None for none.
        infeed_queue: an IPUInfeedQueue whose elements the body takes.
        use_while_v1: accepted; there is one kind of loop.

    Returns:
        The tensors after the last iteration: a list of several, a single tensor, or an operation if there are none.

    Raises:
        TypeError: `n` is no integer; `body` cannot be called with the given arguments, or returns another number or
            other dtypes of tensors.
        ValueError: `body` returns operations before tensors.
    """
    first = _listed(inputs)
    _check(body, len(first), infeed_queue, "body")
    return _loop(lambda *loop: True, body, first, infeed_queue, _count(n))


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Nest = None,
    infeed_queue: IPUInfeedQueue | None = None,
    maximum_iterations: TensorLike | None = None,
    use_while_v1: bool = True,
) -> Any:
    """A loop that runs while `condition` of its tensors is true; otherwise it works like `repeat`.

    Args:
        condition: takes the loop's tensors, without an element of the infeed, and returns a boolean scalar.
        body: takes the loop's tensors and returns their new values, see `repeat`.
        inputs: the initial values: a list of tensors, one tensor, or None for none.
        infeed_queue: an IPUInfeedQueue whose elements the body takes.
        maximum_iterations: the maximum number of iterations, or None.
        use_while_v1: accepted; there is one kind of loop.

    Returns:
        The tensors after the last iteration: a list of several, a single tensor, or an operation if there are none.

    Raises:
        TypeError: `body` or `condition` cannot be called with the given arguments, `body` returns another number or
            other dtypes of tensors, or `condition` returns anything but a boolean scalar.
        ValueError: `body` returns operations before tensors.
    """
    first = _listed(inputs)
    _check(body, len(first), infeed_queue, "body")
    _check(condition, len(first), None, "condition")
    return _loop(condition, body, first, infeed_queue, maximum_iterations)


def _loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Sequence[Any],
    infeed_queue: IPUInfeedQueue | None,
    maximum_iterations: TensorLike | None,
) -> Any:
    """The loop's result for the initial values `inputs`."""
    if named := [value for value in inputs if isinstance(value, dict)]:
        raise TypeError(f"Expected inputs to be tensors. Received: a dictionary of {list(named[0])}. Give its values.")
    values = [value if isinstance(value, tf.TensorArray) else tf.convert_to_tensor(value) for value in inputs]
    types = [value.dtype for value in values]
    condition, body = converted(condition), converted(body)

    def within(counter: tf.Tensor, *loop: tf.Tensor) -> Any:
        going_on = tf.convert_to_tensor(condition(*loop))
        if going_on.dtype != tf.bool or going_on.shape.rank:
            raise TypeError(
                f"Expected the loop condition to return a boolean scalar. Received: {going_on.dtype.name} of shape "
                f"{going_on.shape}. Compare with a number, or reduce with tf.reduce_all."
            )
        return going_on

    @in_present_scope
    def iteration(counter: tf.Tensor, *loop: tf.Tensor) -> list[Any]:
        positional, named = ((), {}) if infeed_queue is None else arguments_of(infeed_queue._dequeue())
        with loop_body(counter):
            tensors, operations = _split(_listed(body(*loop, *positional, **named)))
            check_updates([each for each in (*tensors, *operations) if not isinstance(each, tf.TensorArray)])
        if [tensor.dtype for tensor in tensors] != types:
            raise TypeError(
                f"Expected the loop body to return {len(types)} tensors of the dtypes of its inputs, "
                f"{[t.name for t in types]}. Received: {[tensor.dtype.name for tensor in tensors]}."
            )
        with tf.control_dependencies(operations):
            kept = [tensor if isinstance(tensor, tf.TensorArray) else tf.identity(tensor) for tensor in tensors]
            return [counter + 1, *kept]

    ended, *results = tf.while_loop(
        *(within, iteration, [tf.constant(0), *values]),
        parallel_iterations=1,
        maximum_iterations=maximum_iterations,
        name="",  # its variables have the names of those around it
    )
    if not values:
        with tf.control_dependencies([ended]):
            return tf.no_op()
    return list(results) if len(values) > 1 else results[0]


def _count(n: TensorLike) -> TensorLike:
    """The number of iterations, a tensor where it is not static. Raises TypeError for all but integer scalars."""
    count = tf.get_static_value(n) if tf.is_tensor(n) else n
    if tf.is_tensor(n) and n.dtype.is_integer and count is None:
        return n
    try:
        return max(operator.index(count), 0)
    except TypeError:
        raise TypeError(f"Expected the number of iterations to be an integer. Received: {n!r}.") from None


def _split(outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Tensors, and the operations after them."""
    outputs = [
        output if isinstance(output, tf.Operation | tf.TensorArray) else tf.convert_to_tensor(output)
        for output in outputs
    ]
    operations = [output for output in outputs if isinstance(output, tf.Operation)]
    tensors = [output for output in outputs if not isinstance(output, tf.Operation)]
    if any(isinstance(output, tf.Operation) for output in outputs[: len(tensors)]):
        raise ValueError(
            "Expected the loop body to return zero or more tensors followed by zero or more operations. "
            "Received: an operation before a tensor."
        )
    return tensors, operations


def _listed(values: Nest) -> list[Any]:
    if values is None:
        return []
    return list(values) if isinstance(values, tuple | list) else [values]


def _check(function: Callable[..., Any], inputs: int, infeed_queue: object, what: str) -> None:
    """Raises TypeError when the function cannot be called with `inputs` tensors and an element of the infeed."""
    if infeed_queue is not None and not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(f"Expected infeed_queue to be an IPUInfeedQueue. Received: {infeed_queue!r}.")
    positional, named = ((), {}) if infeed_queue is None else arguments_of(infeed_queue.element_spec)
    if accepts(function, inputs + len(positional), list(named)):
        return
    from_infeed = f" and {len(positional) + len(named)} from the infeed" if infeed_queue is not None else ""
    names = f" (by the names {', '.join(named)})" if named else ""
    raise TypeError(
        f"Supplied loop {what} function cannot be called with the specified inputs. Received: {inputs} "
        f"inputs{from_infeed}{names}, but the loop {what} needs {requirement(function)}."
    )
