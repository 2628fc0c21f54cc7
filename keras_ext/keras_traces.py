"""The traces of a step that plain Keras would make: which one runs a batch, and the Python state that it has read.

TensorFlow traces a function once for each type of its arguments, from the second type on with open dimensions. Each
program of the engine has one shape, so it may be compiled long after the trace by which Keras would run its batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.function import trace_type
from tensorflow.core.function.polymorphism import function_type, type_dispatch

from ipu._internal.thread_values import ThreadValue
from keras_ext.epochs.batch_types import OPEN_ROWS, BatchType, ListOf, OfSpecs
from keras_ext.epochs.feeds import BatchSignature
from keras_ext.python_state import PythonState
from keras_ext.types import KerasModel

open_rows = ThreadValue(False)
"""Whether this thread traces a step that in Keras' own trace has batches with an open number of rows."""


class KerasTraces:
    """The traces of one function of a model, by the order in which they are made."""

    def __init__(self) -> None:
        self._types = type_dispatch.TypeDispatchTable()
        self._numbers: dict[Any, int] = {}
        self._has_open_rows: list[bool] = []
        self._states: dict[int, PythonState] = {}

    def number(self, signature: BatchSignature, batch_type: BatchType) -> int:
        """The number of the trace for a batch of an iterator of this type, a new one if Keras would trace now."""
        wanted = _function_type(_spec(signature, batch_type))
        found = self._types.dispatch(wanted)
        if found is None:
            found = self._types.try_generalizing_function_type(wanted)
            self._types.add_target(found)
            self._numbers[found] = len(self._numbers)
            rows = next((spec.shape[:1] for spec in found.flat_inputs if spec.shape.rank), tf.TensorShape([0]))
            self._has_open_rows.append(not rows.is_fully_defined())
        return self._numbers[found]

    @contextlib.contextmanager
    def traced_as(self, number: int) -> Iterator[None]:
        """Restores Python's state as the trace has read it, while the context is open; leaves it if the trace has read
        none.
        """
        state = self._states.get(number)
        with open_rows.replaced_by(self._has_open_rows[number]):
            with contextlib.nullcontext() if state is None else state.restored():
                yield

    def note_traced(self, number: int, model: KerasModel) -> None:
        """Notes that the trace has read and changed the present state, unless it did so before."""
        if number not in self._states:
            self._states[number] = PythonState(model)


def _spec(signature: BatchSignature, batch_type: BatchType) -> Any:
    """The argument of Keras' function as nested specs."""
    if isinstance(batch_type, OfSpecs):
        return batch_type.layout.unflatten(iter(batch_type.specs))
    rows = [(None, *shape[1:]) if batch_type is OPEN_ROWS and shape else shape for shape in signature.shapes]
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in zip(rows, signature.dtypes, strict=True)]
    batch = signature.layout.unflatten(iter(specs))
    return [batch] * batch_type.batches if isinstance(batch_type, ListOf) else batch


def _function_type(spec: Any) -> Any:
    kind = function_type.Parameter.POSITIONAL_ONLY
    return function_type.FunctionType([function_type.Parameter("data", kind, False, trace_type.from_value(spec))])
