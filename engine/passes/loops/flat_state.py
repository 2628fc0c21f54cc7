"""Makes the state of each `while` a flat tuple, so that passes on loops need not handle nested ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.ir import AnyShape, Computation, Instruction, Shape, TupleShape
from engine.passes.loops.rebuilding import computation_of, element_of, parameter_of, substituted, tuple_of
from engine.passes.rewriting import changed, on_each


@on_each("while")
def flatten_loop_states(instruction: Instruction) -> Instruction | None:
    """The loop over the leaves of a nested state, and its results as the nested tuple.

    TensorFlow's lists are pairs of a buffer and a size.
    """
    shape = instruction.shape
    if not isinstance(shape, TupleShape) or not any(isinstance(each, TupleShape) for each in shape.elements):
        return None
    body, condition = instruction.called
    leaves = shape.leaves
    initial = tuple_of(f"{instruction.name}.flat", list(_leaves(instruction.operands[0])))
    called = (
        _with_flat_parameter(body, leaves, flat_root=True),
        _with_flat_parameter(condition, leaves, flat_root=False),
    )
    loop = changed(instruction, shape=initial.shape, operands=(initial,), called=called)
    return _nested(iter([element_of(loop, k) for k in range(len(leaves))]), shape, instruction.name)


def _with_flat_parameter(computation: Computation, leaves: Sequence[Shape], flat_root: bool) -> Computation:
    (old,) = computation.parameters
    parameter = parameter_of(old.name, leaves)
    nested = _nested(iter([element_of(parameter, k) for k in range(len(leaves))]), old.shape, old.name)
    results = list(_leaves(computation.root)) if flat_root else [computation.root]
    new = substituted(results, {old: nested})
    root = tuple_of(computation.root.name, [new[r] for r in results]) if flat_root else new[computation.root]
    return computation_of(computation.name, parameter, root)


def _leaves(value: Instruction) -> Iterator[Instruction]:
    if not isinstance(value.shape, TupleShape):
        yield value
        return
    for index in range(len(value.shape.elements)):
        yield from _leaves(element_of(value, index))


def _nested(leaves: Iterator[Instruction], shape: AnyShape, name: str) -> Instruction:
    if not isinstance(shape, TupleShape):
        return next(leaves)
    return tuple_of(f"{name}.nested", [_nested(leaves, element, name) for element in shape.elements])
