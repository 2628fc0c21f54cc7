"""Vertices of the user's own, called with tensors, and their gradients by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu._internal.compiler.device_calls import in_graph
from ipu._internal.conversion import converted
from ipu._internal.custom_ops.declaration import Declaration, Split, parameters
from ipu._internal.custom_ops.vertex_calls import Compiled, call_vertex
from ipu._internal.types import TensorLike


class Vertex:
    """A function of a tile's slices of its inputs and outputs, which is called with tensors. `vertex` builds it.

    Args:
        declaration: the function, its split, outputs and cycles, as `vertex` has checked them.
    """

    def __init__(self, declaration: Declaration) -> None:
        self.__name__, self.__doc__ = declaration.name, declaration.function.__doc__
        self.declaration = declaration
        self._compiled: dict[Any, Compiled] = {}
        self._gradient: Vertex | Callable[..., Any] | None = None
        self._wanted: list[str] = []

    def __call__(self, *inputs: TensorLike, name: str | None = None) -> Any:
        """The output, or a tuple of outputs, for the tensors of its inputs.

        In functions that run on the device it runs there, elsewhere on the host, with the same bits. Inputs of float16
        and bfloat16 arrive as float32, and such outputs are rounded once.

        Raises:
            VertexError: inputs of other shapes or dtypes than the split allows, or a function that does not compile.
        """
        if len(inputs) != len(self.declaration.inputs):
            raise self.declaration.error(f"inputs ({', '.join(self.declaration.inputs)}). Received: {len(inputs)}")
        with tf.name_scope(name or self.__name__):
            tensors = in_graph([tf.convert_to_tensor(each) for each in inputs])

            @tf.custom_gradient
            def linked(*given: tf.Tensor) -> Any:
                results = call_vertex(self.declaration, self._compiled, given)
                return tuple(results), lambda *upstream: self._gradients(given, results, upstream)

            results = linked(*tensors)
        return results[0] if len(results) == 1 else tuple(results)

    def gradient(self, function: Vertex | Callable[..., Any]) -> Any:
        """Decorator: the gradient of this vertex, a second vertex or a function of TensorFlow operations.

        It takes by name what it needs: inputs and outputs of this vertex, and `d_NAME`, the gradient of output NAME. A
        vertex has an output `d_NAME` for each input NAME that has a gradient. A function returns a gradient (or None)
        for each input, in order, or a dictionary of those that it has.

        Args:
            function: the gradient: a `Vertex`, or a function of tensors.

        Returns:
            `function` itself.

        Raises:
            VertexError: a parameter of another name.
        """
        is_vertex = isinstance(function, Vertex)
        wanted = function.declaration.inputs if isinstance(function, Vertex) else parameters(function)
        known = [
            *self.declaration.inputs,
            *self.declaration.outputs,
            *(f"d_{name}" for name in self.declaration.outputs),
        ]
        given = [f"d_{name}" for name in self.declaration.inputs]
        wrong = [name for name in wanted if name not in known]
        wrong += (
            [name for name in function.declaration.outputs if name not in given] if isinstance(function, Vertex) else []
        )
        if wrong:
            raise self.declaration.error(
                f"a gradient that takes some of ({', '.join(known)})"
                f"{f' and gives some of ({chr(44).join(given)})' if is_vertex else ''}. Received: {', '.join(wrong)}"
            )
        self._gradient, self._wanted = function, list(wanted)
        return function

    def _gradients(
        self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], upstream: Sequence[Any]
    ) -> list[tf.Tensor | None]:
        """The gradients of the inputs, from those of the outputs."""
        if self._gradient is None:
            raise self.declaration.error(
                f"a gradient, because a variable before it is trained. Received: none. Give it one with "
                f"@{self.__name__}.gradient, or stop the gradient with tf.stop_gradient"
            )
        values = dict(zip(self.declaration.inputs, inputs, strict=True)) | dict(
            zip(self.declaration.outputs, outputs, strict=True)
        )
        for name, value, each in zip(self.declaration.outputs, outputs, upstream, strict=True):
            values[f"d_{name}"] = tf.zeros_like(value) if each is None else tf.convert_to_tensor(each)
        found = converted(self._gradient)(*(values[name] for name in self._wanted))
        if isinstance(self._gradient, Vertex):
            parts = found if isinstance(found, tuple) else (found,)
            found = {name[2:]: part for name, part in zip(self._gradient.declaration.outputs, parts, strict=True)}
        elif not isinstance(found, Mapping):
            listed = list(found) if isinstance(found, list | tuple) else [found]
            if len(listed) != len(inputs):
                raise self.declaration.error(f"{len(inputs)} gradients, one for each input. Received: {len(listed)}")
            found = dict(zip(self.declaration.inputs, listed, strict=True))
        return [
            self._checked(name, value, found.get(name))
            for name, value in zip(self.declaration.inputs, inputs, strict=True)
        ]

    def _checked(self, name: str, value: tf.Tensor, found: Any) -> tf.Tensor | None:
        if found is None or not (value.dtype.is_floating or value.dtype.is_complex):
            return None
        made = tf.cast(found, value.dtype)
        if not made.shape.is_compatible_with(value.shape):
            raise self.declaration.error(f"a gradient {value.shape} of input {name!r}. Received: {made.shape}")
        return made

    def __repr__(self) -> str:
        return f"<{self.declaration.title}>"


def vertex(
    function: Callable[..., None] | None = None,
    *,
    split: Split | Mapping[str, Split] = "elementwise",
    outputs: Callable[..., Any] | None = None,
    cycles: Callable[..., int] | None = None,
    reassociate: bool = False,
) -> Any:
    """Decorator: makes an operation of a function of NumPy arrays, which Numba compiles and all workers run.

    The function has a parameter for each input and then for each output, and writes the outputs' elements. It gets the
    slices of one vertex at a time, C-contiguous: of inputs read-only, of outputs uninitialised. It cannot raise
    exceptions or allocate memory.

    Args:
        function: the function; None where the decorator has arguments.
        split: how arrays are divided, for all or for each parameter by name. "elementwise": arrays of one shape arrive
            as [elements]. "rows": the dimensions before the last one of the first such array are joined; every other
            one begins with the same dimensions, and arrives as [rows, ...]. "whole" (inputs): each vertex gets all of
            the array. "reduction" (outputs): each vertex gets zeros of the whole shape, and the results are added up.
        outputs: a function of the inputs that returns a list with something of each output's `shape` and `dtype`: an
            input, or a tf.TensorSpec. By default there is one output like the first input.
        cycles: a function of the slices of the inputs, with `shape` and `dtype`, that returns the cycles of a worker
            thread on the chip, for cost reports. By default they assume some per element, and say so.
        reassociate: whether floating-point sums and products may be computed in another order, which makes
            vectors of them. The order is fixed for a processor, whatever the number of threads.

    Returns:
        A Vertex: call it with tensors. Its `gradient` is a decorator of its gradient.

    Raises:
        VertexError: a declaration that does not fit the function.
    """
    if function is None:
        return lambda given: Vertex(Declaration(given, split, outputs, cycles, reassociate))
    return Vertex(Declaration(function, split, outputs, cycles, reassociate))
