"""Orders instructions of the entry and of loops for short live ranges: a weight's update follows its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from engine.compiler_options import DEFAULT_OPTIONS, CompilerOptions
from engine.errors import InternalError
from engine.ir import Computation, Instruction, Module
from engine.ir.module import needs_first
from engine.ir.properties import is_repeatable
from engine.passes.liveness import LiveStorage, peak_liveness, peak_of, storage_of
from engine.passes.rewriting import Callees, with_callees, with_computations
from engine.passes.scheduling import by_priority, clustering, look_ahead, post_order, shortest_path
from engine.passes.update_order import readers_before_updates

Before = Mapping[Instruction, Sequence[Instruction]]
Preference = Callable[[int], int]


WORTH = 0.1
"""Share of an iteration's most live bytes that another order of a loop's body must save."""


PREFERENCES: tuple[Preference, ...] = (
    lambda bytes_freed: -bytes_freed,  # the instruction that frees most bytes, or takes fewest
    lambda bytes_freed: -max(0, bytes_freed),  # instructions that free memory; others keep the given order
    lambda bytes_freed: 0,  # the given order, as far as possible
)


def schedule(module: Module, before: Before | None = None, options: CompilerOptions = DEFAULT_OPTIONS) -> Module:
    """The module with its entry in the one of several orders that needs least memory, or in an algorithm's order.

    `before[x]` lists instructions that must run before x although x does not read them. Raises InternalError
    if this creates a cycle.
    """
    entry = module.entry
    storage = storage_of(entry, _updates_in_place(module))
    needs = _needs(entry, storage, before or {})
    order = _best(storage, needs) if options.scheduling == "CHOOSE_BEST" else _by_algorithm(storage, needs, options)
    instructions = _with_the_rest(entry, order)
    return Module(module.name, Computation(entry.name, instructions, entry.root), dict(module.aliases))


def schedule_updates_last(module: Module, options: CompilerOptions = DEFAULT_OPTIONS) -> Module:
    """`schedule` with the readers of each variable before its update, as far as possible."""
    return schedule(module, readers_before_updates(module), options)


def order_loops(module: Module) -> Module:
    """The module with the bodies of loops reordered where that lowers the most live bytes of an iteration by WORTH."""
    bodies = {i.called[0] for i in module.instructions() if i.opcode == "while"}

    def change(computation: Computation, callees: Callees) -> Computation:
        made = with_callees(computation, callees)
        if computation not in bodies:
            return made
        after = ordered(made)
        return after if peak_liveness(after) <= (1 - WORTH) * peak_liveness(made) else made

    return with_computations(module, change)


def live_peak(module: Module) -> int:
    """The most bytes that results take at once in the entry's order; updates overwrite variables where they can."""
    return peak_liveness(module.entry, _updates_in_place(module))


def ordered(body: Computation) -> Computation:
    """A loop's body in the one of several orders that needs least memory. Side effects and draws keep their order."""
    storage = storage_of(body)
    acting = [i for i in body.instructions if i in storage.reads and not is_repeatable(i)]
    needs = _needs(body, storage, {later: (earlier,) for earlier, later in pairwise(acting)})
    return Computation(body.name, _with_the_rest(body, _best(storage, needs)), body.root)


def _best(storage: LiveStorage, needs: Needs) -> list[Instruction]:
    """The order with the lowest peak of live bytes among several."""
    orders = [_list_schedule(storage, needs, preference) for preference in PREFERENCES]
    return min(orders, key=lambda each: peak_of(each, storage))


def _by_algorithm(storage: LiveStorage, needs: Needs, options: CompilerOptions) -> list[Instruction]:
    """The order of an algorithm. Draws from a hidden state keep their default order."""
    drawing = [instruction for instruction in _best(storage, needs) if not is_repeatable(instruction)]
    needs = dict(needs)
    for earlier, later in pairwise(drawing):
        needs[later] = tuple(dict.fromkeys((*needs[later], earlier)))
    if options.scheduling == "LOOK_AHEAD":
        return look_ahead(storage, needs, options.lookahead_depth, options.search_space)
    return {"POST_ORDER": post_order, "CLUSTERING": clustering, "SHORTEST_PATH": shortest_path}[options.scheduling](
        storage, needs
    )


def _updates_in_place(module: Module) -> list[Instruction]:
    """Results that become a parameter's new value and can overwrite its old one."""
    return [module.results[index] for index in module.aliases.values()]


Needs = dict[Instruction, tuple[Instruction, ...]]


def _needs(computation: Computation, storage: LiveStorage, before: Before) -> Needs:
    """Maps each instruction that takes memory to those that must run before it; others pass their needs on."""
    needs: Needs = {}

    def needs_of(operand: Instruction) -> tuple[Instruction, ...]:
        return storage.sources[operand] if operand in storage.reads else needs[operand]

    for instruction in computation.instructions:
        earlier = [s for each in before.get(instruction, ()) for s in storage.sources[each]]
        if len(instruction.operands) == 1 and not earlier:
            needs[instruction] = needs_of(instruction.operands[0])
        else:
            of_operands = (need for operand in instruction.operands for need in needs_of(operand))
            needs[instruction] = tuple(dict.fromkeys([*of_operands, *earlier]))
    return {instruction: needs[instruction] for instruction in storage.reads}


def _list_schedule(storage: LiveStorage, needs: Needs, preference: Preference) -> list[Instruction]:
    """Always runs the most preferred ready instruction; among equals, the first in the given order."""
    unread = {instruction: set(readers) for instruction, readers in storage.readers.items()}

    def priority(instruction: Instruction) -> int:
        last = [each for each in storage.reads[instruction] if len(unread[each]) == 1 and each not in storage.kept]
        freed = sum(storage.bytes[each] for each in last)
        return preference(freed - storage.bytes[instruction])

    def last_readers(instruction: Instruction) -> Iterator[Instruction]:
        """The last readers of what an instruction has read: they free it now."""
        for source in storage.reads[instruction]:
            unread[source].remove(instruction)
            if len(unread[source]) == 1:
                yield from unread[source]

    order = by_priority(needs, priority, last_readers)
    if len(order) < len(needs):
        stuck = next(instruction for instruction in needs if instruction not in order)
        raise InternalError(f"Expected an order without a cycle. Received: {stuck!r}, which waits for itself.")
    return order


def _with_the_rest(computation: Computation, order: list[Instruction]) -> list[Instruction]:
    """Parameters first; instructions without memory right before their first user; unused ones at the end."""
    parameters = [i for i in computation.instructions if i.opcode == "parameter"]
    placed: dict[Instruction, None] = dict.fromkeys(parameters)
    for instruction in (*order, *computation.instructions):
        for each in needs_first(instruction, lambda i: i.operands, placed):
            placed[each] = None
    return list(placed)
