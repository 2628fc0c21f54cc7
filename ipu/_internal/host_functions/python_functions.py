"""tf.py_function and tf.numpy_function in traced functions: Python callables on copies of the program's arrays."""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.eager import context
from tensorflow.python.eager.backprop_util import IsTrainable as is_trainable
from tensorflow.python.framework import composite_tensor, constant_op
from tensorflow.python.ops import script_ops
from tensorflow.python.util import variable_utils

from engine.errors import HostFunctionError
from engine.host_functions import PythonFunction
from engine.runtime.execution_locks import while_waiting
from ipu._internal.host_functions.calls import Gradient, host_call

RECORD = tf.TensorSpec([], tf.int32)
"""The number under which the tape of a call is kept for its gradient."""


def python_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, use_eager_py_func: bool = False, name: str | None = None
) -> Any:
    """Calls Python like TensorFlow's `_internal_py_func`, in a function being traced: its result, or a list if `Tout`
    is one.
    """
    is_list = isinstance(Tout, list | tuple)
    types = [tf.as_dtype(t) if not isinstance(t, tf.TypeSpec) else t for t in (Tout if is_list else [Tout])]
    specs = [t if isinstance(t, tf.TypeSpec) else tf.TensorSpec(None, t) for t in tf.nest.flatten(types, True)]
    inp = variable_utils.convert_variables_to_tensors(list(inp))
    if any(isinstance(each, composite_tensor.CompositeTensor) for each in inp):
        func, inp, _, _ = script_ops._wrap_for_composites(func, inp, types)
    operands = [tf.convert_to_tensor(each) for each in inp]
    title = str(name or getattr(func, "__name__", type(func).__name__))
    if use_eager_py_func:
        eager = EagerFunction(title, func, [spec.dtype for spec in specs])
        *results, record = host_call(eager, operands, [*specs, RECORD], eager.gradient_of(operands))[0]
        eager.record = record
    else:
        results, _ = host_call(NumpyFunction(title, func), operands, specs, _no_gradients(len(operands)))
    return results if is_list else results[0]


def _no_gradients(operands: int) -> Gradient:
    """Gradients of a NumPy function: None, as its results do not depend on the operands for TensorFlow."""
    return lambda *_: [None] * operands


class CopyingFunction(PythonFunction):
    """A callable on copies of the program's arrays, which it may keep and write to."""

    def __init__(self, name: str, callable: Callable[..., Sequence[Any]]) -> None:
        super().__init__(name, self._copied)
        self._on_copies = callable
        self._caller = 0
        self._context = contextvars.copy_context()

    def begin(self) -> None:
        """Notes the thread that calls the program, and holds the locks of its variables, and its context variables."""
        self._caller, self._context = threading.get_ident(), contextvars.copy_context()

    def _copied(self, *arrays: np.ndarray) -> Sequence[Any]:
        copies = [array.copy() for array in arrays]
        if threading.get_ident() == self._caller:
            return self._on_copies(*copies)
        with while_waiting(self._refuse_to_wait):
            return self._context.copy().run(self._on_copies, *copies)

    def _refuse_to_wait(self) -> None:
        raise HostFunctionError(
            f"Expected host function {self.name!r} to use no variable or device of the program that calls it, which "
            f"waits for it. Received: a use, in a program with queues or callbacks. Pass the value as an operand."
        )


class NumpyFunction(CopyingFunction):
    """A callable on NumPy arrays."""

    def __init__(self, name: str, func: Callable[..., Any]) -> None:
        super().__init__(name, lambda *arrays: _as_sequence(func(*arrays)))


class EagerFunction(CopyingFunction):
    """A callable on eager tensors. `record` is its last result: the number of the tape, for a call of its gradient."""

    record: tf.Tensor

    def __init__(self, name: str, func: Callable[..., Any], dtypes: Sequence[tf.DType]) -> None:
        super().__init__(name, self._call)
        self._func, self._dtypes = func, dtypes
        self._is_differentiated = False
        self._tapes: dict[int, tuple[tf.GradientTape, list[tf.Tensor], list[tf.Tensor]]] = {}
        self._numbers = itertools.count()

    def begin(self) -> None:
        """Notes the calling thread, and drops the tapes of steps that were not completed."""
        super().begin()
        self._tapes.clear()

    def gradient_of(self, operands: Sequence[tf.Tensor]) -> Gradient:
        """The gradient of a call with these operands: a second call of the host, with the tape of the first."""
        trained = [k for k, operand in enumerate(operands) if is_trainable(operand)]

        def gradient(*upstream: tf.Tensor) -> list[Any]:
            self._is_differentiated = True
            used = [k for k, each in enumerate(upstream[:-1]) if each is not None and is_trainable(each)]
            specs = [tf.TensorSpec(operands[k].shape, operands[k].dtype) for k in trained]

            def call(number: np.ndarray, *given: np.ndarray) -> Any:
                return eagerly(self._gradients, int(number), eager_tensors(given), used, trained)

            function = CopyingFunction(f"gradient of {self.name}", call)
            found, _ = host_call(
                function, [self.record, *(upstream[k] for k in used)], specs, self._refuse, ordered=False
            )
            by_number = dict(zip(trained, found, strict=True))
            return [by_number.get(k) for k in range(len(operands))]

        return gradient

    def _call(self, *arrays: np.ndarray) -> Sequence[Any]:
        number = next(self._numbers) & 0x7FFFFFFF
        return [*eagerly(self._results, number, eager_tensors(arrays)), np.int32(number)]

    def _results(self, number: int, operands: list[tf.Tensor]) -> list[np.ndarray]:
        if self._is_differentiated:
            with tf.GradientTape() as tape:
                tape.watch([each for each in operands if is_trainable(each)])
                results = self._tensors(operands)
            self._tapes[number] = tape, operands, results
        else:
            results = self._tensors(operands)
        return [result.numpy() for result in results]

    def _tensors(self, operands: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        returned = _as_sequence(self._func(*operands))
        if len(returned) != len(self._dtypes):
            raise HostFunctionError(
                f"Expected {len(self._dtypes)} results of {self.name!r}, as Tout says. Received: {len(returned)}."
            )
        pairs = zip(returned, self._dtypes, strict=True)
        return [v if tf.is_tensor(v) and v.dtype == dtype else tf.convert_to_tensor(v, dtype) for v, dtype in pairs]

    def _gradients(
        self, number: int, upstream: list[tf.Tensor], used: Sequence[int], trained: Sequence[int]
    ) -> list[np.ndarray]:
        """The gradients of operands `trained`, from those of results `used`."""
        tape, operands, results = self._tapes.pop(number)
        targets, sources = [results[k] for k in used], [operands[k] for k in trained]
        found = tape.gradient(targets, sources, upstream, tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(each).numpy() for each in found]

    def _refuse(self, *_: tf.Tensor) -> list[Any]:
        raise NotImplementedError(
            f"Expected first derivatives of tf.py_function {self.name!r}. Received: a gradient of its gradient. "
            f"Differentiate twice inside the function, or write it in TensorFlow operations."
        )


def eagerly(call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that executes TensorFlow operations on the host, in no strategy's scope."""
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        if context.executing_eagerly() and not context.context().device_name:
            return call(*arguments)  # entering the modes takes longer than most functions
        with context.eager_mode(), tf.device("/device:CPU:0"):
            return call(*arguments)
    finally:
        distribute_lib._pop_per_thread_mode()


def eager_tensors(arrays: Sequence[np.ndarray]) -> list[tf.Tensor]:
    """Arrays as tensors, which may share their memory."""
    return [constant_op.convert_to_eager_tensor(array, context.context()) for array in arrays]


def _as_sequence(returned: Any) -> Sequence[Any]:
    if returned is None:
        return []
    return returned if isinstance(returned, list | tuple) else [returned]
