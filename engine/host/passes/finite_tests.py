"""Tests of gradients of 16-bit floats for infinities and NaN, as loss scaling makes them, by a special codelet.

A nest tests each element and combines truth values. The codelet takes the maximum of the bits without their signs, of
twice as many elements in a vector. For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.all_finite import AllFinite, all_finite
from engine.codelets.language.encoded import CodeletWork
from engine.emit.arithmetic import FLOATS_16
from engine.program.nest import Apply, Input, Nest
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.fused_loop import FusedLoop, Strided


def compare_exponents(program: Program) -> Program:
    """Replaces nests that test contiguous arrays of 16-bit floats and do nothing else."""
    rewriter, changed = ProgramRewriter(program), False
    for at, each in enumerate(program.compute_sets):
        found = _test(each)
        if found is not None:
            rewriter.replace(at, replace(each, work=found))
            changed = True
    return rewriter.result() if changed else program


def _test(compute_set: ComputeSet) -> CodeletWork | None:
    """The codelet's work in place of a test, whose units write a truth value each."""
    work = compute_set.work
    if not isinstance(work, FusedLoop) or compute_set.overwrites or work.record is not None:
        return None
    tested = _tested(work.nest)
    if tested is None:
        return None
    (result,) = work.nest.reductions[0].accesses
    source, flags = work.operands[tested], work.operands[result]
    assert isinstance(source, Strided) and isinstance(flags, Strided)
    if source.strides != (2,) or source.pitch:
        return None
    parameters = AllFinite(
        source=source.address,
        flags=flags.address,
        elements=work.points,
        unit_elements=work.grain,
        pitch=flags.pitch,
        infinity=FLOATS_16[work.nest.accesses[tested].element_type],
    )
    return CodeletWork.of(all_finite, [parameters])


def _tested(nest: Nest) -> int | None:
    """Returns the access of 16-bit floats for a nest that only combines, in one loop, whether they are finite."""
    if nest.reduced != (True,) or nest.stores or len(nest.reductions) != 1 or len(nest.accesses) != 2:
        return None
    (reduction,) = nest.reductions
    if reduction.combine != "and" or nest.accesses[reduction.accesses[0]].element_type != "pred":
        return None
    test = nest.nodes[reduction.values[0]]
    if not isinstance(test, Apply) or test.operation.opcode != "is-finite":
        return None
    node = nest.nodes[test.operands[0]]
    if isinstance(node, Apply) and node.operation.opcode == "convert" and node.operation.element_type == "f32":
        node = nest.nodes[node.operands[0]]
    if not isinstance(node, Input) or nest.accesses[node.access].inner != "contiguous":
        return None
    return node.access if nest.accesses[node.access].element_type in FLOATS_16 else None
