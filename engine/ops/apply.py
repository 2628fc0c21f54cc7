"""Runs computations by the operations' definitions: on values, or a scalar computation on whole arrays at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np

from engine.errors import InternalError, UnsupportedOperation
from engine.ir import AnyShape, Computation, Instruction, Shape
from engine.ir.opcodes import COMMUTATIVE, ELEMENTWISE, TUPLES
from engine.ir.printer import print_instruction
from engine.ops.registry import DEFINITIONS, Value

Watcher = Callable[[Instruction, list[Value], Value], None]
_watchers: list[Watcher] = []
ON_ARRAYS = ELEMENTWISE | TUPLES | {"parameter", "constant"}
"""Opcodes that, in a scalar computation, may be run on arrays in place of scalars."""


@contextlib.contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Calls `watcher` for each instruction that `apply` runs, with its operands' values and its own, while the context
    is open.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def apply(computation: Computation, arguments: Sequence[Value], *, on_arrays: bool = False) -> Value:
    """The root's value for the given parameters, which may be arrays in place of scalars with `on_arrays`.

    Raises UnsupportedOperation for an opcode without a definition, InternalError for a value that does not have
    its instruction's shape.
    """
    values: dict[Instruction, Value] = {}
    for instruction in computation.instructions:
        operands = [values[operand] for operand in instruction.operands]
        if instruction.opcode == "parameter":
            value = arguments[instruction["parameter_number"]]
        elif on_arrays and instruction.opcode == "call":
            value = apply(instruction.called[0], operands, on_arrays=True)
        else:
            value = _define(instruction, operands)
            for watcher in () if on_arrays else _watchers:
                watcher(instruction, operands, value)
        if not on_arrays:
            _check(instruction, instruction.shape, value)
        values[instruction] = value
    return values[computation.root]


def _define(instruction: Instruction, operands: list[Value]) -> Value:
    try:
        function = DEFINITIONS[instruction.opcode]
    except KeyError:
        raise UnsupportedOperation(
            f"Expected an operation the engine defines. Received: {print_instruction(instruction)}. "
            f"Replace it by operations among: {', '.join(sorted(DEFINITIONS))}."
        ) from None
    with np.errstate(all="ignore"):
        return function(instruction, cast(list[np.ndarray], operands))


def _check(instruction: Instruction, shape: AnyShape, value: Value) -> None:
    if isinstance(shape, Shape):
        if isinstance(value, np.ndarray) and (value.dtype, value.shape) == (shape.dtype, shape.dimensions):
            return
        received = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InternalError(f"Expected {shape} as the value of {instruction!r}. Received: {received}.")
    if not isinstance(value, tuple) or len(value) != len(shape.elements):
        raise InternalError(f"Expected a tuple of {len(shape.elements)} values for {instruction!r}.")
    for element, part in zip(shape.elements, value, strict=True):
        _check(instruction, element, part)


def is_elementwise(computation: Computation) -> bool:
    """Whether the scalar computation may be run on arrays in place of scalars."""
    return all(
        i.opcode in ON_ARRAYS or (i.opcode == "call" and is_elementwise(i.called[0])) for i in computation.instructions
    )


def apply_to_arrays(computation: Computation, arguments: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Flat results of a scalar computation at each position of the arguments, which are broadcast to one shape."""
    common = np.broadcast_shapes(*(a.shape for a in arguments))
    if is_elementwise(computation):
        results = flat(apply(computation, arguments, on_arrays=True))
        return tuple(np.broadcast_to(r, common) for r in results)
    arguments = [np.broadcast_to(a, common) for a in arguments]
    types = [shape.dtype for shape in computation.root.tuple_shapes]
    outputs = tuple(np.empty(common, dtype) for dtype in types)
    for position in np.ndindex(*common):
        results = flat(apply(computation, [np.asarray(a[position]) for a in arguments]))
        for output, result in zip(outputs, results, strict=True):
            output[position] = result
    return outputs


def flat(value: Value) -> tuple[np.ndarray, ...]:
    """The array as a tuple of one, or the arrays of a tuple of arrays."""
    return cast(tuple[np.ndarray, ...], value if isinstance(value, tuple) else (value,))


def single_operation(computation: Computation) -> str | None:
    """The opcode of a body that is one operation on parameters 0 and 1 (in that order, unless it commutes), else None.

    "assign" stands for a body that returns parameter 1.
    """
    root = computation.root
    if root.opcode == "parameter":
        return "assign" if root["parameter_number"] == 1 else None
    if len(root.operands) != 2 or any(o.opcode != "parameter" for o in root.operands):
        return None
    numbers = [o["parameter_number"] for o in root.operands]
    if numbers == [0, 1] or (numbers == [1, 0] and root.opcode in COMMUTATIVE):
        return root.opcode
    return None


UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "maximum-number": np.fmax,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
"""NumPy's binary ufuncs, with `reduce` and `at`, by opcode: correct for real floats, integers and pred."""
