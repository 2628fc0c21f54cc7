"""Lowers `while` and `conditional`: compute sets that run again or not at all, steered by predicates on the device.

A loop's state has one buffer for each element. The body's new values are copied into it at the end (of these copies,
write_in_place drops what it can); an element that the body hands on unchanged is not copied.
"""

from __future__ import annotations

from math import prod

from engine.ir import AnyShape, Computation, Instruction, Shape
from engine.ir.affine import MOVING
from engine.lower.context import Context, Value, lowering
from engine.lower.copies import copy
from engine.lower.views import whole
from engine.program.program import Buffer, Region

DEFERRED = MOVING | {"constant", "iota", "tuple", "get-tuple-element", "parameter"}
"""Lowered when somebody needs them: most moves never become memory."""

LONG = 10**9
"""Elements and multiply-adds, about a second's work, from which on nobody would wait for the end of a loop."""
LEAST = 1000
"""What any compute set takes at least, by the same measure."""


@lowering("while")
def lower_while(context: Context, instruction: Instruction) -> Value:
    """State, condition, body, and the jump back; the result is the state."""
    body, condition = instruction.called
    state = _state(context, instruction, body, context.value(instruction.operands[0]))
    again, done = context.new_label(), context.new_label()
    begin = len(context.compute_sets)
    context.mark("label", again)
    predicate = _buffer(lower_computation(context, condition, state))
    context.mark("branch", done, predicate, when=False)
    test = len(context.compute_sets)
    _assign(context, instruction.name, state, lower_computation(context, body, state))
    end = len(context.compute_sets)
    turns = context.trip_counts.turns(instruction)
    inner = any(r.long for r in context.regions if r.begin >= begin)
    long = inner or turns is None or turns * _work(context, begin) >= LONG
    context.mark("jump", again, when=long)
    context.mark("label", done)
    context.regions += [Region(begin, end, True, turns, long), Region(test, end, repeats=False)]
    return state


def _work(context: Context, begin: int) -> int:
    """What the compute sets from `begin` on take, in elements and multiply-adds, inner loops turn by turn."""
    work = 0
    for at, compute_set in enumerate(context.compute_sets[begin:], begin):
        effort = compute_set.effort
        runs = prod(max(1, r.turns or 1) for r in context.regions if r.repeats and r.begin <= at < r.end)
        work += runs * max(LEAST, effort.multiply_adds + sum(effort.elements.values()))
    return work


@lowering("conditional")
def lower_conditional(context: Context, instruction: Instruction) -> Value:
    """Branches that stay branches: each copies its result to where the conditional's lies."""
    choice, *arguments = instruction.operands
    if choice.array_shape.element_type != "pred":
        raise context.unsupported(instruction)
    values = [context.value(a) for a in arguments]
    predicate = context.buffer(choice)
    result = _like(context, instruction.name, instruction.shape)
    otherwise, done = context.new_label(), context.new_label()
    context.mark("branch", otherwise, predicate, when=False)
    start = len(context.compute_sets)
    _assign(context, instruction.name, result, lower_computation(context, instruction.called[0], values[0]))
    context.mark("jump", done)
    context.mark("label", otherwise)
    middle = len(context.compute_sets)
    _assign(context, instruction.name, result, lower_computation(context, instruction.called[1], values[1]))
    context.mark("label", done)
    end = len(context.compute_sets)
    context.regions += [Region(start, middle, repeats=False), Region(middle, end, repeats=False)]
    return result


def lower_computation(context: Context, computation: Computation, argument: Value) -> Value:
    """The root's value for one argument. A computation may be lowered more than once."""
    for instruction in computation.instructions:
        context.values.pop(instruction, None)
    (parameter,) = computation.parameters
    context.values[parameter] = argument
    for instruction in computation.instructions:
        if instruction.opcode not in DEFERRED:
            context.value(instruction)
    return context.value(computation.root)


def _buffer(value: Value) -> Buffer:
    assert isinstance(value, Buffer)
    return value


def _like(context: Context, name: str, shape: AnyShape) -> Value:
    """New buffers for an array or a tuple."""
    if isinstance(shape, Shape):
        return context.new_buffer(name, shape)
    return tuple(_like(context, f"{name}.{k}", s) for k, s in enumerate(shape.elements))


def _state(context: Context, instruction: Instruction, body: Computation, initial: Value) -> Value:
    """The state's buffers, holding the initial values. What the body never changes stays where it is."""
    root = body.root
    unchanged = {
        k
        for k, element in enumerate(root.operands if root.opcode == "tuple" else ())
        if element.opcode == "get-tuple-element"
        and element.operands[0].opcode == "parameter"
        and element["tuple_index"] == k
    }
    assert isinstance(initial, tuple)
    state: list[Value] = []
    for k, value in enumerate(initial):
        if k in unchanged:
            state.append(value)
        else:
            target = _copy_of(context, f"{instruction.name}.state.{k}", value)
            state.append(target)
    return tuple(state)


def _copy_of(context: Context, name: str, value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_copy_of(context, f"{name}.{k}", v) for k, v in enumerate(value))
    target = context.new_buffer(name, value.shape)
    copy(context, f"{name}.initial", whole(value, value.shape), whole(target, value.shape))
    return target


def _leaves(value: Value) -> list[Buffer]:
    return [value] if isinstance(value, Buffer) else [leaf for part in value for leaf in _leaves(part)]


def _assign(context: Context, name: str, targets: Value, sources: Value) -> None:
    """Copies new values into the state; what is itself part of the state is set aside first."""
    pairs = [(t, s) for t, s in zip(_leaves(targets), _leaves(sources), strict=True) if t is not s]
    held = set(_leaves(targets))
    settled = []
    for number, (target, source) in enumerate(pairs):
        if source in held:
            aside = context.new_buffer(f"{name}.aside.{number}", source.shape)
            copy(context, aside.name, whole(source, source.shape), whole(aside, source.shape))
            source = aside
        settled.append((target, source))
    for target, source in settled:
        copy(context, f"{target.name}.update", whole(source, target.shape), whole(target, target.shape))
