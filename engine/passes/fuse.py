"""Elementwise fusion: instructions over the same loops become one `fusion`, one codelet, one pass over memory.

Walking from users to operands, an instruction joins the group of its users if they share its loops; with users in
several groups it joins as many as it can without a cycle. Inputs of a group that reach it through data movement alone
(broadcast, transpose, slice ...) are read in place.

Builds `fusion` instructions from groups: a computation for the members, parameters for the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Computation, Instruction, Module, Shape
from engine.ir.module import needs_first
from engine.ir.properties import steered_computations
from engine.passes.activation_derivatives import ActivationDerivatives
from engine.passes.fusible import (
    is_elementwise,
    is_moving,
    is_reduction,
    is_scalar_constant,
    is_unit_reshape,
    loops_of,
    reads_pointwise,
    reduced_loops,
)
from engine.passes.groups import Group, Groups
from engine.passes.loops.rebuilding import element_of, tuple_of
from engine.passes.recomputed import Recomputed
from engine.passes.rewriting import Callees, changed, with_computations, with_parts
from engine.passes.transposed_products import is_made_transposed, moves_lanes

LEAST_READERS = 2
"""Fewest groups that read a transposed array for which storing it takes less time than strided loads."""


def build_fusions(computation: Computation, groups: Groups, callees: Callees) -> Computation:
    """The computation with each group replaced by one instruction, in an order in which operands come first."""
    builder = _Builder(computation, groups, callees)
    for instruction in computation.instructions:
        builder.need(instruction)
    return Computation(computation.name, builder.instructions, builder.new[computation.root])


class _Builder:
    def __init__(self, computation: Computation, groups: Groups, callees: Callees) -> None:
        self.groups, self.callees = groups, callees
        self.users = computation.users()
        self.root = computation.root
        self.new: dict[Instruction, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.made: set[Group] = set()
        self.recomputed = Recomputed(groups, self.users, self._is_free)

    def need(self, instruction: Instruction) -> None:
        """Adds the instruction to the new computation, after all that it depends on."""
        for each in needs_first(instruction, self._needs, self.new):
            group = self._group(each)
            if group is None:
                self.new[each] = self._copy(each)
                continue
            if group not in self.made:
                self._make_fusion(group)
            if each not in self.new:
                self.new[each] = self._stand_in(each)

    def _needs(self, instruction: Instruction) -> Sequence[Instruction]:
        group = self._group(instruction)
        if group is None:
            return instruction.operands
        base = self._base(instruction)
        return self._sources(group) if self._inside(base, group) else [*self._sources(group), base]

    def _group(self, instruction: Instruction) -> Group | None:
        """The group to build for an instruction; None for a lone reshape, which costs nothing."""
        group = self.groups.of.get(instruction)
        if group is None or all(is_unit_reshape(m) for m in self.groups.members(group)):
            return None
        return group

    def _stand_in(self, instruction: Instruction) -> Instruction:
        """The value of a member that is no result: a reshape of a result, or one that no outside instruction reads."""
        base = self.new[self._base(instruction)]
        if not self._is_read_outside(instruction, self.groups.of[instruction]):
            return base
        name, shape, op_name = instruction.name, instruction.shape, instruction.op_name
        return self._added(Instruction(name, "reshape", shape, (base,), op_name=op_name))

    def _copy(self, instruction: Instruction) -> Instruction:
        called = [self.callees.get(c, c) for c in instruction.called]
        return self._added(with_parts(instruction, [self.new[o] for o in instruction.operands], called))

    def _added(self, instruction: Instruction) -> Instruction:
        self.instructions.append(instruction)
        return instruction

    def _base(self, instruction: Instruction) -> Instruction:
        """The operand at the start of a chain of unit reshapes."""
        while is_unit_reshape(instruction) and self._inside(instruction.operands[0], self.groups.of[instruction]):
            instruction = instruction.operands[0]
        return instruction if not is_unit_reshape(instruction) else instruction.operands[0]

    def _inside(self, instruction: Instruction, group: Group) -> bool:
        return self.groups.of.get(instruction) is group

    def _is_read_outside(self, member: Instruction, group: Group) -> bool:
        if member in self.recomputed:
            return False
        return member is self.root or any(not self._inside(u, group) for u in self.users[member])

    def _sees_through(self, instruction: Instruction) -> bool:
        """Whether a codelet recomputes an instruction outside its group, or reads it in place."""
        if instruction in self.groups.of:
            return self.recomputed.is_on_the_way(instruction)
        return self._is_free(instruction)

    def _is_free(self, instruction: Instruction) -> bool:
        """Whether an instruction outside all groups needs no memory of its own."""
        if instruction in self.groups.of:
            return False
        if is_scalar_constant(instruction) or instruction.opcode == "iota":
            return True
        if is_made_transposed(instruction, self.users) or self._is_stored_transposed(instruction):
            return False
        return is_moving(instruction) or (instruction.opcode == "convert" and is_elementwise(instruction))

    def _is_stored_transposed(self, instruction: Instruction) -> bool:
        """Whether an array is transposed in memory: several groups would read it across its rows, lane by lane."""
        if instruction.opcode != "transpose" or not moves_lanes(instruction):
            return False
        readers = {self.groups.of.get(user) for user in self.users[instruction]}
        return len(readers - {None}) >= LEAST_READERS

    def _sources(self, group: Group) -> list[Instruction]:
        """The instructions outside a group that its codelet reads."""
        sources: dict[Instruction, None] = {}
        seen: set[Instruction] = set()
        stack = [o for m in self.groups.members(group) for o in m.operands if not self._inside(o, group)]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if self._sees_through(current):
                stack.extend(current.operands)
            else:
                sources[current] = None
        return list(sources)

    def _results(self, group: Group) -> list[Instruction]:
        """The members with readers outside the group; for a reshape, its base."""
        results: dict[Instruction, None] = {}
        for member in self.groups.members(group):
            if self._is_read_outside(member, group):
                base = self._base(member) if is_unit_reshape(member) else member
                if self._inside(base, group):
                    results[base] = None
        return list(results)

    def _make_fusion(self, group: Group) -> None:
        results = self._results(group)
        body = _FusionBody(self, group)
        inside = [body.value(r) for r in results]
        root = inside[0]
        if len(results) > 1:
            root = tuple_of("results", inside)
            body.instructions.append(root)
        self.made.add(group)
        name = f"fusion.{len(self.made)}"
        computation = Computation(f"fused.{len(self.made)}", body.instructions, root)
        weightiest = max(results, key=lambda r: r.tuple_shapes[0].elements)
        count = sum(len(r.tuple_shapes) for r in results)
        operands, attributes = tuple(self.new[s] for s in body.sources), {"loops": group.loops, "results": count}
        fusion = Instruction(name, "fusion", root.shape, operands, attributes, (computation,), weightiest.op_name)
        self._added(fusion)
        for number, result in enumerate(results):
            self.new[result] = fusion
            if len(results) > 1:
                self.new[result] = self._added(element_of(fusion, number))
                self.new[result].op_name = result.op_name
        for member in self.groups.members(group):
            if not is_unit_reshape(member):
                self.new.setdefault(member, fusion)


class _FusionBody:
    """The computation inside a fusion, built from its results backwards."""

    def __init__(self, builder: _Builder, group: Group) -> None:
        self.builder, self.group = builder, group
        self.instructions: list[Instruction] = []
        self.sources: list[Instruction] = []
        self.values: dict[Instruction, Instruction] = {}

    def value(self, instruction: Instruction) -> Instruction:
        """The instruction inside the fusion that corresponds to one outside."""
        for each in needs_first(instruction, lambda i: i.operands if self._is_inside(i) else (), self.values):
            if self._is_inside(each):
                self.values[each] = changed(each, operands=[self.values[o] for o in each.operands])
                self.instructions.append(self.values[each])
            else:
                self.values[each] = self._parameter(each)
        return self.values[instruction]

    def _is_inside(self, instruction: Instruction) -> bool:
        return self.builder._inside(instruction, self.group) or self.builder._sees_through(instruction)

    def _parameter(self, source: Instruction) -> Instruction:
        number = len(self.sources)
        shape = source.shape
        assert isinstance(shape, Shape), source
        parameter = Instruction(f"parameter.{number}", "parameter", shape, (), {"parameter_number": number})
        self.sources.append(source)
        self.instructions.append(parameter)
        return parameter


def fuse(module: Module) -> Module:
    """Groups elementwise instructions and reduces into `fusion` instructions: in the entry, in loops and branches."""
    steered = steered_computations(module)
    return with_computations(module, lambda each, new: fuse_computation(each, new) if each in steered else each)


def fuse_computation(computation: Computation, callees: Callees) -> Computation:
    """One computation with its groups fused; `callees` replace the computations it calls."""
    groups = Groups(computation)
    users = computation.users()
    kept = ActivationDerivatives(computation).kept()
    for instruction in reversed(computation.instructions):
        if is_reduction(instruction):
            groups.start(instruction, loops_of(instruction), reduced_loops(instruction))
        elif instruction in kept:
            # A kept derivative shares functions with the forward pass, so it is not fused into the backward pass.
            groups.start(instruction, loops_of(instruction))
        elif is_elementwise(instruction) and not _is_read_in_place(instruction, users):
            _position(instruction, groups, users)
    for instruction in computation.instructions:
        if instruction.opcode == "scatter":
            _join_readers(instruction, groups, users)
    return build_fusions(computation, groups, callees)


def _is_read_in_place(instruction: Instruction, users: dict[Instruction, list[Instruction]]) -> bool:
    """Whether a conversion is read through data movement alone: recomputing it costs less than a buffer."""
    readers = users[instruction]
    return (
        instruction.opcode == "convert"
        and bool(readers)
        and all(is_moving(r) and r.opcode != "reshape" and all(is_elementwise(u) for u in users[r]) for r in readers)
    )


def _position(instruction: Instruction, groups: Groups, users: dict[Instruction, list[Instruction]]) -> None:
    loops = loops_of(instruction)
    readers = users[instruction]
    found = [groups.of[u] for u in readers if u in groups.of and reads_pointwise(u, instruction)]
    candidates = [g for g in dict.fromkeys(found) if g.loops == loops]
    if len(candidates) == 1 and len(found) == len(readers) and groups.may_absorb(instruction, candidates[0]):
        groups.join(candidates[0], groups.start(instruction, loops))  # nothing new becomes reachable
        return
    group = groups.start(instruction, loops)
    for candidate in reversed(candidates):
        if groups.may_join(group, candidate):
            group = groups.join(group, candidate)


def _join_readers(scatter: Instruction, groups: Groups, users: dict[Instruction, list[Instruction]]) -> None:
    """Joins the groups that read sums of rows, such as the two of Lion: sums with one reader are never stored."""
    found = [groups.of[u] for u in users[scatter] if u in groups.of and reads_pointwise(u, scatter)]
    kept = [g for g in dict.fromkeys(found) if g.reduced is None]
    for each in kept[1:]:
        if groups.may_join(kept[0], each):
            kept[0] = groups.join(kept[0], each)
