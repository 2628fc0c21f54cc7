"""The value of every node at one point of a nest (or at `width` neighbouring points)."""

from __future__ import annotations

from collections.abc import Sequence

from engine.codelets.language.lanes import HALF_TYPES, I64, Lanes, is_complex, is_float, rounded_constant
from engine.emit.arithmetic import is_finite_16, lane_index
from engine.emit.conversion import convert
from engine.emit.estimates import fused, quotient_of_half, reciprocal
from engine.emit.registry import FLUSHING, emit_operation, emit_unrounded
from engine.machine_code.llvm import ir
from engine.program.nest import Access, Apply, Argument, Constant, Index, Input, MultiplyAdd, Nest, Node, Parameter


def element_type_of(nodes: tuple[Node, ...], number: int, accesses: tuple[Access, ...]) -> str:
    """A node's element type."""
    node = nodes[number]
    if isinstance(node, MultiplyAdd):
        return "f32"
    if isinstance(node, Input):
        return accesses[node.access].element_type
    return node.operation.element_type if isinstance(node, Apply) else node.element_type


class Point:
    """The current addresses of all accesses, and the nodes' values computed from there.

    `addresses[k]` is access k's address at lane 0; `steps[k]` the bytes (or counts) from lane to lane; `ready` holds
    values loaded in outer loops; `deferred` are nodes that are not rounded before they are stored, `short` those whose
    NaN have a lower half of zeros. `constants` are the scalars of parameters.
    """

    def __init__(
        self,
        lanes: Lanes,
        nodes: tuple[Node, ...],
        accesses: tuple[Access, ...],
        addresses: list[ir.Value],
        steps: list[ir.Value],
        mask: ir.Value | None,
        ready: dict[int, ir.Value] | None = None,
        deferred: frozenset[int] = frozenset(),
        short: frozenset[int] = frozenset(),
        constants: Sequence[ir.Value] = (),
    ) -> None:
        self.deferred, self.short, self.constants = deferred, short, constants
        self.lanes, self.nodes, self.accesses = lanes, nodes, accesses
        self.addresses, self.steps, self.mask = addresses, steps, mask
        self.values: dict[int, ir.Value] = dict(ready or {})
        self._bits: dict[int, ir.Value] = {}
        """Bits of loaded 16-bit floats by access, kept as their memory may be overwritten before they are tested."""

    def has(self, number: int) -> bool:
        """Whether a node's value has been computed."""
        return number in self.values

    def value(self, number: int) -> ir.Value:
        """Node `number` in all lanes. Nodes are in topological order, so evaluation needs no deep recursion."""
        for earlier in self.needed(number):
            self.values[earlier] = self._compute(earlier)
        return self.values[number]

    def needed(self, *numbers: int) -> list[int]:
        """The nodes that are still to be computed for these nodes, in order."""
        needed, stack = set[int](), list(numbers)
        while stack:
            current = stack.pop()
            if current in self.values or current in needed:
                continue
            needed.add(current)
            node = self.nodes[current]
            if isinstance(node, Apply | MultiplyAdd):
                stack.extend(node.operands)
        return sorted(needed)

    def _compute(self, number: int) -> ir.Value:
        lanes, node = self.lanes, self.nodes[number]
        if isinstance(node, Constant):
            return constant_value(lanes, node)
        if isinstance(node, Parameter):
            return lanes.splat(self.constants[node.number])
        if isinstance(node, Apply):
            operands = [self.values[o] for o in node.operands]
            if self._is_quotient_of_half(node):
                return quotient_of_half(lanes, *operands)
            if (tested := self._tested_16(node)) is not None:
                return is_finite_16(lanes, self._bits[tested], self.accesses[tested].element_type)
            if number in self.deferred:
                return emit_unrounded(lanes, node.operation, operands)
            is_normal = self._converts_arithmetic(node)
            return emit_operation(lanes, node.operation, operands, is_normal, number in self.short)
        if isinstance(node, MultiplyAdd):
            return self._multiply_add(node)
        if isinstance(node, Index):
            count = lane_index(lanes, self.addresses[node.access], self.steps[node.access])
            return convert(lanes, count, "s64", node.element_type)
        if isinstance(node, Argument):
            raise KeyError(f"argument {node.number} has no value here")
        return self.load(node.access)

    def _multiply_add(self, node: MultiplyAdd) -> ir.Value:
        lanes = self.lanes
        first, second, addend = (self.values[operand] for operand in node.operands)
        second = reciprocal(lanes, second) if node.divides else second
        first = lanes.builder.fneg(first) if node.negates_product else first
        return fused(lanes, first, second, lanes.builder.fneg(addend) if node.negates_addend else addend)

    def _is_quotient_of_half(self, node: Apply) -> bool:
        """Whether widened f16 are divided by one number, as when gradients are unscaled by a loss scale."""
        if node.operation.opcode != "divide" or node.operation.element_type != "f32" or node.operation.is_estimated:
            return False
        dividend, divisor = (self.nodes[operand] for operand in node.operands)
        if not isinstance(dividend, Apply) or not isinstance(divisor, Input):
            return False
        widens = dividend.operation.opcode == "convert" and dividend.operation.operand_types == ("f16",)
        return widens and self.lanes.width > 1 and self.accesses[divisor.access].inner == "splat"

    def _converts_arithmetic(self, node: Apply) -> bool:
        """Whether a node converts a result of f32 arithmetic, which under the executor is no denormal number."""
        if node.operation.opcode != "convert" or node.operation.operand_types != ("f32",):
            return False
        source = self.nodes[node.operands[0]]
        return isinstance(source, MultiplyAdd) or (isinstance(source, Apply) and source.operation.opcode in FLUSHING)

    def _tested_16(self, node: Apply) -> int | None:
        """Returns the access of 16-bit floats that an is-finite tests, directly or widened as in loss scaling."""
        if node.operation.opcode != "is-finite":
            return None
        tested = self.nodes[node.operands[0]]
        if (
            isinstance(tested, Apply)
            and tested.operation.opcode == "convert"
            and node.operation.operand_types == ("f32",)
        ):
            tested = self.nodes[tested.operands[0]]
        if not isinstance(tested, Input) or self.accesses[tested.access].inner != "contiguous":
            return None
        return tested.access if self.accesses[tested.access].element_type in HALF_TYPES else None

    def load(self, access: int) -> ir.Value:
        element_type, inner = self.accesses[access].element_type, self.accesses[access].inner
        address = self.addresses[access]
        if inner == "splat":
            return self.lanes.load_splat(address, element_type)
        if inner == "contiguous" and element_type in HALF_TYPES:
            self._bits[access] = self.lanes.load(address, "u16", self.mask)
            return self.lanes.from_memory(self._bits[access], element_type)
        if inner == "contiguous":
            return self.lanes.load(address, element_type, self.mask)
        return self.lanes.load_strided(address, self.steps[access], element_type, self.mask)

    def store(self, number: int, access: int) -> None:
        element_type, inner = self.accesses[access].element_type, self.accesses[access].inner
        value = self.value(number)
        if inner == "contiguous":
            self.lanes.store(value, self.addresses[access], element_type, self.mask)
        else:
            self.lanes.store_strided(value, self.addresses[access], self.steps[access], element_type, self.mask)


def constants_of(nest: Nest, builder: ir.IRBuilder, block: ir.Value) -> list[ir.Value]:
    """The scalars of a nest's parameters, by number, from the parameter block at an address."""
    given = {node.number: node.element_type for node in nest.nodes if isinstance(node, Parameter)}
    words = (builder.add(block, ir.Constant(I64, 8 * (nest.constants_word + number))) for number in sorted(given))
    return [Lanes(builder, 1).load(word, given[number]) for number, word in zip(sorted(given), words, strict=True)]


def constant_value(lanes: Lanes, node: Constant) -> ir.Constant:
    """A constant in all lanes, rounded to its type."""
    kind = node.element_type
    read = complex if is_complex(kind) else float if is_float(kind) else int
    return lanes.constant(kind, rounded_constant(kind, read(node.value)))
