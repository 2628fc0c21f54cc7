"""Recomputes activations in the backward pass of a step, in place of keeping them.

The backward pass reads copies of the values that `segments.py` drops. An optimization-barrier makes the copies of a
segment depend on a gradient that enters it: no order and no fusion brings them forward.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.ir.op_names import RECOMPUTED, stage_in
from engine.passes.loops.rebuilding import element_of, tuple_of
from engine.passes.order import live_peak, ordered, schedule_updates_last
from engine.passes.rewriting import Callees, Names, changed, with_computations, with_parts
from engine.passes.segments import Segments, segments_of

GAIN = 0.9
"""Share of the most live bytes above which recomputation without checkpoints is not worth it."""


def recompute_activations(module: Module) -> Module:
    """The module with activations recomputed in its entry and in loops, where that takes less memory.

    Parts of pipelines are left alone: `engine/partition` recomputes by stages.
    """
    called = [c for each in module.computations() for i in each.instructions if i.opcode == "while" for c in i.called]
    steps = {module.entry, *called}
    updated = {each for each in module.entry.parameters if each["parameter_number"] in module.aliases}

    def change(computation: Computation, callees: Callees) -> Computation:
        in_stages = any(stage_in(i.op_name) is not None for i in computation.instructions)
        found = segments_of(computation, updated) if computation in steps and not in_stages else Segments()
        made = _Recomputation(computation, callees, found).run()
        if not found.copied:
            return made
        if found.is_marked:
            return made if computation is module.entry else ordered(made)
        kept = _Recomputation(computation, callees, Segments()).run()
        if computation is module.entry:
            before, after = (
                schedule_updates_last(Module(module.name, each, dict(module.aliases))) for each in (kept, made)
            )
        else:
            before, after = (Module(each.name, ordered(each)) for each in (kept, made))
            made = after.entry
        return made if live_peak(after) <= GAIN * live_peak(before) else kept

    return with_computations(module, change)


Node = tuple[Instruction, bool]
"""An instruction, or its copy."""


class _Recomputation:
    """Rebuilds a computation with copies for the backward pass."""

    def __init__(self, computation: Computation, callees: Callees, segments: Segments) -> None:
        self.computation, self.callees, self.segments = computation, callees, segments
        self.names = Names(computation.instructions)
        self.instructions: list[Instruction] = []
        self.made: dict[Node, Instruction] = {}
        self.behind_barrier: dict[tuple[Instruction, Instruction], Instruction] = {}

    def run(self) -> Computation:
        """The computation; itself if nothing is recomputed and no callee has changed."""
        for instruction in self.computation.instructions:
            self._need((instruction, False))
        if self.instructions == self.computation.instructions:
            return self.computation
        return Computation(self.computation.name, self.instructions, self.made[self.computation.root, False])

    def _need(self, node: Node) -> None:
        """Adds a node after all that it reads and, for a copy, the gradient it waits for (no recursion)."""
        stack = [node]
        while stack:
            instruction, copied = stack[-1]
            reads = [(o, self.segments.reads_copy(instruction, o, copied)) for o in instruction.operands]
            gate = self.segments.gate_of(instruction) if copied else None
            needs = reads if gate is None else [*reads, (gate, False)]
            waiting = [each for each in needs if each not in self.made]
            if (instruction, copied) in self.made or not waiting:
                made = stack.pop()
                if made not in self.made:
                    self.made[made] = self._built(made, reads, gate)
            else:
                stack += waiting

    def _built(self, node: Node, reads: list[Node], gate: Instruction | None) -> Instruction:
        instruction, copied = node
        operands = [self._value(each, gate) for each in reads]
        called = [self.callees.get(c, c) for c in instruction.called]
        if not copied:
            return self._added(with_parts(instruction, operands, called), instruction)
        copy = changed(instruction, operands=operands, called=tuple(called))
        copy.op_name = f"{RECOMPUTED}/{instruction.op_name}"
        return self._added(copy)

    def _value(self, node: Node, gate: Instruction | None) -> Instruction:
        """The value that an instruction reads: a copy reads kept values behind the barrier, except those updated in
        place.
        """
        (instruction, copied), value = node, self.made[node]
        if copied or gate is None or not self.segments.is_gated(instruction):
            return value
        if (instruction, gate) not in self.behind_barrier:
            both = self._added(tuple_of("kept", (value, self.made[gate, False])))
            barrier = self._added(Instruction("barrier", "optimization-barrier", both.shape, (both,)))
            self.behind_barrier[instruction, gate] = self._added(element_of(barrier, 0))
        return self.behind_barrier[instruction, gate]

    def _added(self, instruction: Instruction, stands_for: Instruction | None = None) -> Instruction:
        added = self.names.settle(instruction, stands_for or instruction)
        self.instructions.append(added)
        return added
