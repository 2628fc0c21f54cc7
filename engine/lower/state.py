"""The buffers of a loop's state, and the initial values in them."""

from __future__ import annotations

from engine.ir import AnyShape, Computation, Instruction, Shape
from engine.ir.attributes import HOLDS_ANYTHING
from engine.ir.opcodes import AFFINE
from engine.lower.context import Context, Value
from engine.lower.dynamic_slices import line_in
from engine.passes.loops.view import element_read
from engine.program.copies import copy, copy_buffer
from engine.program.program import Buffer
from engine.program.views import whole


def like(name: str, shape: AnyShape) -> Value:
    """New buffers for an array or a tuple."""
    if isinstance(shape, Shape):
        return Buffer(name, shape)
    return tuple(like(f"{name}.{k}", s) for k, s in enumerate(shape.elements))


def leaves(value: Value) -> list[Buffer]:
    """All buffers of a value."""
    return [value] if isinstance(value, Buffer) else [leaf for part in value for leaf in leaves(part)]


def initial_state(context: Context, loop: Instruction, iterations: int = 0) -> Value:
    """The state's buffers, holding the initial values. Elements that the body never changes stay where they are.

    With a known trip count `iterations`, elements that the loop overwrites completely are left uninitialised.
    """
    initial, body = loop.operands[0], loop.called[0]
    unchanged, overwritten = _unchanged(body), _overwritten(context, loop, iterations) if iterations else set()
    state: list[Value] = []
    for k, shape in enumerate(loop.tuple_shapes):
        name = f"{loop.name}.state.{k}"
        if k in overwritten:
            state.append(like(name, shape))
        elif k not in unchanged and initial.opcode == "tuple" and initial.operands[k].get(HOLDS_ANYTHING):
            # Iterations need the buffer alone, with any contents, even before the first of them writes it.
            state.append(Buffer(name, shape, permanent=True))
        elif initial.opcode == "tuple" and k not in unchanged and _is_move(context, initial.operands[k]):
            state.append(_moved(context, name, initial.operands[k]))
        else:
            value = _element(context, initial, k)
            state.append(value if k in unchanged else _copy_of(context, name, value))
    return tuple(state)


def _element(context: Context, initial: Instruction, number: int) -> Value:
    if initial.opcode == "tuple":
        return context.value(initial.operands[number])
    value = context.value(initial)
    assert isinstance(value, tuple)
    return value[number]


def _is_move(context: Context, instruction: Instruction) -> bool:
    """Whether a value would need its own memory only for the loop's sake."""
    return instruction not in context.values and instruction.opcode in AFFINE


def _moved(context: Context, name: str, initial: Instruction) -> Buffer:
    view = context.view(initial)
    target = Buffer(name, initial.array_shape, carried=True)
    is_whole = view == whole(view.buffer, initial.array_shape)
    suffix = "initial" if is_whole else "moved"
    copy(context, f"{name}.{suffix}", view, whole(target, initial.array_shape), elidable=is_whole)
    return target


def _copy_of(context: Context, name: str, value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_copy_of(context, f"{name}.{k}", v) for k, v in enumerate(value))
    target = Buffer(name, value.shape, carried=True)
    copy_buffer(context, f"{name}.initial", value, target, elidable=True)
    return target


def _new_values(body: Computation) -> tuple[Instruction, ...]:
    return tuple(body.root.operands) if body.root.opcode == "tuple" else ()


def _unchanged(body: Computation) -> set[int]:
    return {k for k, new in enumerate(_new_values(body)) if element_read(new) == k}


def _overwritten(context: Context, loop: Instruction, iterations: int) -> set[int]:
    """Elements of which the body only replaces slices, all of them before the loop ends."""
    body = loop.called[0]
    users = body.users()
    (parameter,) = body.parameters
    if any(user.opcode != "get-tuple-element" for user in users[parameter]):
        return set()
    readers: dict[int, list[Instruction]] = {}
    for element in users[parameter]:
        readers.setdefault(element["tuple_index"], []).extend(users[element])
    return {
        k
        for k, new in enumerate(_new_values(body))
        if new.opcode == "dynamic-update-slice"
        and element_read(new.operands[0]) == k
        and readers[k] == [new]
        and users[new] == [body.root]
        and _new_values(body).count(new) == 1
        and _covers(context, loop, new, iterations)
    }


def _covers(context: Context, loop: Instruction, update: Instruction, iterations: int) -> bool:
    """Whether an update's slices, one per iteration, cover the array, along its first dimension."""
    array, new, start, *_ = update.operands
    sizes, taken = array.array_shape.dimensions, new.array_shape.dimensions
    if not array.array_shape.elements or sizes[1:] != taken[1:] or start.opcode == "constant":
        return False
    line = line_in(context, loop, iterations, start)
    if line is None:
        return False
    last = sizes[0] - taken[0]
    starts = sorted(
        {min(max(line.first + line.growth * iteration, 0), last) for iteration in range(min(iterations, 2 * sizes[0]))}
    )
    steps = [0, *(start + taken[0] for start in starts)]
    return all(start <= end for start, end in zip([*starts, sizes[0]], steps, strict=True))
