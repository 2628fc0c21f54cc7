"""Lowers `while` and `conditional`: compute sets that run repeatedly or conditionally.

Predicates on the device decide which compute sets run. Where the trip count of a loop is known, workers count its
iterations by themselves, and by this count alone take the branches that depend on nothing else.
A loop's state has one buffer for each element. The body's new values are copied into it at the end (the pass
elide_copies drops the copies it can); an element that the body passes on unchanged is not copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from engine.ir import Computation, Instruction, Shape
from engine.ir.attributes import ROWS_OF_AN_ITERATION
from engine.ir.opcodes import AFFINE, CONTROL_FLOW, TUPLES
from engine.ir.work import NO_ARRAYS, work_of
from engine.lower.context import DEFERRED, Context, Iteration, Value, lowering
from engine.lower.known_iterations import per_iteration
from engine.lower.state import initial_state, leaves, like
from engine.passes.loops.view import element_read
from engine.passes.update_order import readers_first
from engine.program.builder import RowBlocks
from engine.program.control_words import COUNTERS
from engine.program.copies import copy_buffer
from engine.program.program import Buffer, PerIteration, Region

MOST_UNITS = 16
"""Most units of a loop's rows, which each worker keeps from iteration to iteration."""
LEAST_GRAIN = 4
"""Fewest rows of a unit, where there are at least twice as many."""
LEAST_WORK = 1 << 14
"""Elements and multiply-adds of an iteration below which one worker runs it: others would start late."""


def rows_of(loop: Instruction) -> RowBlocks | None:
    """The rows of an iteration: those that the loop names, or else those that most arrays have.

    None for little work, and where iterations update weights: these are whole steps, each of which reads all weights.

    Branches of an iteration are partitioned along its rows, too.
    """
    named = loop.get(ROWS_OF_AN_ITERATION)
    if named is not None:
        return _cut(named)
    body = loop.called[0]
    instructions = [*body.instructions, *_in_branches(body)]
    arrays = [
        shape
        for instruction in instructions
        if instruction.opcode not in NO_ARRAYS
        for shape in instruction.tuple_shapes
        if isinstance(shape, Shape) and shape.elements > 1
    ]
    if _updates_weights(body) or sum(work_of(instruction) for instruction in instructions) < LEAST_WORK or not arrays:
        return None
    firsts = Counter(next(size for size in shape.dimensions if size != 1) for shape in arrays)
    extent, _ = max(firsts.items(), key=lambda pair: (pair[1], pair[0]))
    return _cut(extent)


def _updates_weights(body: Computation) -> bool:
    """Whether the second operand of a dot is an element of the state that the body changes."""
    for dot in body.instructions:
        if dot.opcode == "dot" and body.root.opcode == "tuple":
            weight = dot.operands[1]
            while weight.opcode in AFFINE:
                weight = weight.operands[0]
            number = element_read(weight)
            if number is not None and element_read(body.root.operands[number]) != number:
                return True
    return False


def _cut(extent: int) -> RowBlocks:
    return RowBlocks(extent, max(-(-extent // MOST_UNITS), min(LEAST_GRAIN, -(-extent // 2))))


def _in_branches(body: Computation) -> Iterator[Instruction]:
    for instruction in body.instructions:
        if instruction.opcode == "conditional":
            for branch in instruction.called:
                yield from branch.instructions


PASSES_ON = AFFINE | TUPLES | CONTROL_FLOW
"""Opcodes that may pass on an operand's memory, or read it only on demand."""


def branch_results(context: Context, instruction: Instruction, argument: Value) -> Value:
    """The buffers of a conditional's result, given the value of the first branch's argument.

    An element that one branch passes on shares the argument element's memory, if that is state of the loop around it
    and no instruction reads it after the conditional.
    """
    results = like(instruction.name, instruction.shape)
    body = context.loop_body
    operand = instruction.operands[1]
    if body is None or operand is not instruction.operands[2] or operand.opcode != "tuple":
        return results
    users = body.users()
    if instruction not in users or users[operand] != [instruction]:
        return results
    assert isinstance(results, tuple) and isinstance(argument, tuple)
    positions, taken = list(results), set[int]()
    for branch in instruction.called:
        for number, forwarded in _forwarded(branch):
            element = operand.operands[forwarded]
            if (
                forwarded not in taken
                and positions[number] is results[number]
                and _is_free(element, instruction, body, users)
            ):
                taken.add(forwarded)
                positions[number] = argument[forwarded]
    return tuple(positions)


def _forwarded(branch: Computation) -> list[tuple[int, int]]:
    """Indices, in result and in argument, of the result's elements that are elements of the argument."""
    results = branch.root.operands if branch.root.opcode == "tuple" else ()
    found = enumerate(map(element_read, results))
    return [(number, element) for number, element in found if element is not None]


def _is_free(
    element: Instruction, conditional: Instruction, body: Computation, users: dict[Instruction, list[Instruction]]
) -> bool:
    """Whether a value is the loop's own memory, from its state or a conditional, and not read after the conditional."""
    if element.opcode != "get-tuple-element" or element.operands[0].opcode not in ("parameter", "conditional"):
        return False
    source, number, reader = element.operands[0], element["tuple_index"], conditional.operands[1]
    others = [u for u in users[source] if u is not element and u.get("tuple_index", number) == number]
    if others or reader not in users[element] or reader.operands.count(element) != 1:
        return False
    order = {each: position for position, each in enumerate(body.instructions)}
    pending = [user for user in users[element] if user is not reader]
    while pending:
        user = pending.pop()
        if order[user] > order[conditional] or user is body.root:
            return False
        if user.opcode in PASSES_ON and user is not conditional:
            pending += users[user]
    return True


LONG = 10**9
"""Elements and multiply-adds, about a second's work, from which on a call cannot wait for the end of a loop."""
LEAST = 1000
"""Least cost of a compute set, in elements and multiply-adds."""


@lowering("while")
def lower_while(context: Context, instruction: Instruction) -> Value:
    """Lowers a loop's initial state, condition, body, and the jump back; the result is the state."""
    iterations = context.trip_counts.iterations(instruction)
    if iterations and context.counters < COUNTERS:
        return _repeat(context, instruction, iterations)
    body, condition = instruction.called
    state = initial_state(context, instruction)
    again, done = context.new_label(), context.new_label()
    begin = len(context.compute_sets)
    context.mark("label", again)
    predicate = _buffer(lower_computation(context, condition, [state]))
    context.mark("branch", done, predicate, when=False)
    test = len(context.compute_sets)
    _lower_body(context, instruction, state, None)
    end = len(context.compute_sets)
    long = iterations is None or _is_long(context, begin, iterations)
    context.mark("jump", again, when=long)
    context.mark("label", done)
    context.regions += [Region(begin, end, True, iterations, long), Region(test, end, repeats=False)]
    return state


def _repeat(context: Context, instruction: Instruction, iterations: int) -> Value:
    """Lowers a loop with a known number of iterations, which needs no condition."""
    state = initial_state(context, instruction, iterations)
    iteration = Iteration(instruction, iterations, context.counters)
    again = context.new_label()
    begin = len(context.compute_sets)
    context.mark("label", again)
    context.counters += 1
    _lower_body(context, instruction, state, iteration)
    context.counters -= 1
    end = len(context.compute_sets)
    long = _is_long(context, begin, iterations)
    context.mark("repeat", again, when=long, iteration=iteration)
    context.regions += [Region(begin, end, True, iterations, long), Region(begin, end, repeats=False)]
    return state


def _lower_body(context: Context, instruction: Instruction, state: Value, iteration: Iteration | None) -> None:
    """Lowers an iteration's compute sets, in units along its rows, and assigns its new values to the state."""
    body, around = instruction.called[0], (context.rows, context.loop_body)
    context.rows, context.loop_body = rows_of(instruction), body
    # If the readers of an element precede its new value, the two need not be kept apart.
    _assign(context, instruction.name, state, lower_computation(context, body, [state], iteration, readers_first(body)))
    context.rows, context.loop_body = around


def _is_long(context: Context, begin: int, iterations: int) -> bool:
    """Whether a call cannot wait for a loop over the compute sets from `begin` on: it is long, or waits for a host."""
    inner = any(r.long for r in context.regions if r.begin >= begin)
    waits = any(m.kind == "leave" and m.position > begin for m in context.marks)
    return inner or waits or iterations * _work(context, begin) >= LONG


def _work(context: Context, begin: int) -> int:
    """Elements and multiply-adds of the compute sets from `begin` on, every iteration of inner loops counted."""
    work = 0
    for at, compute_set in enumerate(context.compute_sets[begin:], begin):
        work_estimate = compute_set.work_estimate
        runs = prod(max(1, r.iterations or 1) for r in context.regions if r.repeats and r.begin <= at < r.end)
        work += runs * max(LEAST, work_estimate.total)
    return work


@lowering("conditional")
def lower_conditional(context: Context, instruction: Instruction) -> Value:
    """Lowers both branches, each of which copies its result to the conditional's, unless it is stored there.

    Raises UnsupportedOperation for a branch index that is not a pred.
    """
    choice, *arguments = instruction.operands
    if choice.array_shape.element_type != "pred":
        raise context.unsupported(instruction)
    values = [context.value(a) for a in arguments]
    known = per_iteration(context, choice)
    predicate = context.buffer(choice) if known is None else None
    result = branch_results(context, instruction, values[0])
    otherwise, done = context.new_label(), context.new_label()
    context.mark("branch", otherwise, predicate, when=False, known=known)
    start = len(context.compute_sets)
    _lower_branch(context, instruction, 0, values[0], result, known)
    jump = len(context.marks)
    context.mark("jump", done)
    context.mark("label", otherwise)
    middle = len(context.compute_sets)
    _lower_branch(context, instruction, 1, values[1], result, known)
    end = len(context.compute_sets)
    if end == middle and len(context.marks) == jump + 2:
        del context.marks[jump]
    else:
        context.mark("label", done)
    context.regions += [Region(start, middle, repeats=False), Region(middle, end, repeats=False)]
    return result


def _lower_branch(
    context: Context, instruction: Instruction, number: int, argument: Value, result: Value, known: PerIteration | None
) -> None:
    """Lowers a branch's compute sets, and assigns its values to the result; in a loop, units run along its rows.

    `known` has the predicate of each iteration, if it is known.
    """
    branch, iteration = instruction.called[number], context.iteration
    if iteration is not None and known is not None:
        iteration = iteration.where([bool(taken) == (number == 0) for taken in known.values])
    (parameter,) = branch.parameters
    context.arguments[parameter] = instruction.operands[1 + number]
    _assign(context, instruction.name, result, lower_computation(context, branch, [argument], iteration))


def lower_computation(
    context: Context,
    computation: Computation,
    arguments: Sequence[Value],
    iteration: Iteration | None = None,
    order: Sequence[Instruction] | None = None,
) -> Value:
    """Lowers a computation for these arguments, perhaps not for the first time, and returns the root's value.

    `iteration` is given for the body of a loop whose trip count is known, and for branches in the body.
    """
    around, context.iteration = context.iteration, iteration
    for instruction in computation.instructions:
        context.values.pop(instruction, None)
    for parameter, argument in zip(computation.parameters, arguments, strict=True):
        context.values[parameter] = argument
    for instruction in order or computation.instructions:
        if instruction.opcode not in DEFERRED:
            context.value(instruction)
    result = context.value(computation.root)
    context.iteration = around
    return result


def _buffer(value: Value) -> Buffer:
    assert isinstance(value, Buffer)
    return value


def _assign(context: Context, name: str, targets: Value, sources: Value) -> None:
    """Copies new values into the state; those that are themselves part of the state are first copied aside."""
    pairs = [(t, s) for t, s in zip(leaves(targets), leaves(sources), strict=True) if t is not s]
    held = set(leaves(targets))
    settled = []
    for number, (target, source) in enumerate(pairs):
        if source in held:
            aside = Buffer(f"{name}.aside.{number}", source.shape)
            copy_buffer(context, aside.name, source, aside)
            source = aside
        settled.append((target, source))
    for target, source in settled:
        copy_buffer(context, f"{target.name}.update", source, target, elidable=True)
