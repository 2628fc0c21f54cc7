"""Instruction, Computation, Module: HLO's semantics under HLO's names.

An instruction's attributes carry HLO's names: `parameter_number`, `literal` (a NumPy array), `dimensions`,
`iota_dimension`, `direction`, `slice_dimensions`, `padding_config`, `window`, `dot_dimension_numbers`,
`convolution_dimension_numbers`, `feature_group_count`, `batch_group_count`, `gather_dimension_numbers`,
`gather_slice_sizes`, `scatter_dimension_numbers`, `tuple_index`, `dynamic_slice_sizes`, `custom_call_target` ...
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.ir.shape import AnyShape, Shape, TupleShape


@dataclass(eq=False, slots=True)
class Instruction:
    """One operation. Compared by identity; never changed once a pass has returned it."""

    name: str
    opcode: str
    shape: AnyShape
    operands: tuple[Instruction, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    called: tuple[Computation, ...] = ()
    op_name: str = ""

    @property
    def array_shape(self) -> Shape:
        """The shape of an instruction that is not a tuple."""
        assert isinstance(self.shape, Shape), self.name
        return self.shape

    @property
    def tuple_shapes(self) -> tuple[Shape, ...]:
        """The shapes of all results: one for an array, one for each element of a flat tuple."""
        if isinstance(self.shape, TupleShape):
            return tuple(s for s in self.shape.elements if isinstance(s, Shape))
        return (self.shape,)

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    def get(self, attribute: str, default: Any = None) -> Any:
        return self.attributes.get(attribute, default)

    def __repr__(self) -> str:
        return f"%{self.name} = {self.shape} {self.opcode}({', '.join('%' + o.name for o in self.operands)})"


@dataclass(eq=False, slots=True)
class Computation:
    """Instructions, operands before users, the root among them."""

    name: str
    instructions: list[Instruction]
    root: Instruction

    @property
    def parameters(self) -> list[Instruction]:
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return sorted(found, key=lambda i: i["parameter_number"])

    def users(self) -> dict[Instruction, list[Instruction]]:
        """The users of each instruction, each once, in order."""
        users: dict[Instruction, list[Instruction]] = {i: [] for i in self.instructions}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                users[operand].append(instruction)
        return users


@dataclass(eq=False, slots=True)
class Module:
    """A program: its entry computation; `aliases` maps updated parameters to the results that are their new values."""

    name: str
    entry: Computation
    aliases: dict[int, int] = field(default_factory=dict)

    def computations(self) -> Iterator[Computation]:
        """Every computation once, callees before callers."""
        done: set[int] = set()

        def walk(computation: Computation) -> Iterator[Computation]:
            if id(computation) in done:
                return
            done.add(id(computation))
            for instruction in computation.instructions:
                for callee in instruction.called:
                    yield from walk(callee)
            yield computation

        yield from walk(self.entry)

    def instructions(self) -> Iterator[Instruction]:
        """The instructions of every computation, callees before callers."""
        return (each for computation in self.computations() for each in computation.instructions)

    @property
    def results(self) -> tuple[Instruction, ...]:
        """The entry's results: the operands of a root tuple, or the one root."""
        root = self.entry.root
        return root.operands if root.opcode == "tuple" else (root,)


Node = TypeVar("Node", bound=Hashable)


def needs_first(start: Node, needs: Callable[[Node], Sequence[Node]], done: Container[object]) -> Iterator[Node]:
    """`start` and all that it needs, each after its own needs, of which the last come first (no recursion).

    What is in `done` is left out; the caller adds each to it.
    """
    stack = [(start, False)]
    while stack:
        each, has_needs = stack.pop()
        if each in done:
            continue
        waiting = [] if has_needs else [(need, False) for need in needs(each) if need not in done]
        if waiting:
            stack += [(each, True), *waiting]
        else:
            yield each


def reached(starts: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> dict[Node, None]:
    """The nodes to which steps lead from some: the nodes that are `following` one of them, or one of those."""
    found = dict.fromkeys(starts)
    pending = list(found)
    while pending:
        fresh = dict.fromkeys(each for each in following(pending.pop()) if each not in found)
        found |= fresh
        pending += fresh
    return found


def topological(roots: Iterable[Instruction], enters: Callable[[Instruction], bool] | None = None) -> list[Instruction]:
    """The roots and all they depend on, operands first, in depth-first post-order.

    With `enters`, without what only instructions depend on for which it is false.
    """

    def operands_of(instruction: Instruction) -> tuple[Instruction, ...]:
        return instruction.operands[::-1] if enters is None or enters(instruction) else ()

    order: dict[Instruction, None] = {}
    for start in roots:
        for each in needs_first(start, operands_of, order):
            order[each] = None
    return list(order)
