"""Constant weights, such as an exported program's, packed or transformed once for all steps.

If a product's right operand is constant, so are its panels, or the parts for matrix registers; the same holds for
kernels that Winograd's convolutions transform. Compute sets that prepare them run before the executable's first step.
For the host only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.codelets.products.pack_panels import PanelPacking
from engine.host.convolutions.winograd_work import WinogradKernel
from engine.host.passes.shared_panels import PANEL, pack_before
from engine.program.program import ComputeSet, Program
from engine.program.rewriter import ProgramRewriter
from engine.program.uses import BufferUses
from engine.program.work.contraction import Contraction

LEAST_BYTES = 1 << 15
"""Bytes of a right operand from which it is packed once: a smaller one stays in the nearest cache."""


def prepare_constants(program: Program) -> Program:
    """Packs constant right operands, and marks compute sets that need not run in each step."""
    rewriter = ProgramRewriter(program)
    for at, each in enumerate(program.compute_sets):
        if _is_to_be_packed(each) and not _repeats(program, at):
            assert isinstance(each.work, Contraction)
            pack_before(rewriter, at, each.work)
    return _marked(rewriter.result())


def _is_to_be_packed(product: ComputeSet) -> bool:
    work = product.work
    if not isinstance(work, Contraction) or work.panels or product.claimed:
        return False
    batches, _, columns, k = work.size
    fits = work.bf16x3 or (work.is_float32 and columns % PANEL == 0)
    one = batches == 1 and work.splits == 1 and fits and 4 * columns * k >= LEAST_BYTES
    spans = [span for span in product.reads if span.buffer is work.b.buffer]
    return one and work.b.buffer.kind == "constant" and work.b.moved is None and len(spans) == 1


def _repeats(program: Program, at: int) -> bool:
    """Whether a compute set is within a loop or a branch."""
    return any(region.begin <= at < region.end for region in program.regions)


def _marked(program: Program) -> Program:
    """The program with compute sets that prepare constants marked to run once, and their results kept."""
    uses, sets = BufferUses(program), list(program.compute_sets)
    for at, each in enumerate(sets):
        if not isinstance(each.work, PanelPacking | WinogradKernel) or _repeats(program, at):
            continue
        [written] = (span.buffer for span in each.writes)
        alone = written.kind == "arena" and list(uses.writers(written)) == [at] and written not in program.outputs
        if alone and all(span.buffer.kind == "constant" for span in each.reads):
            written.permanent = True
            sets[at] = replace(each, once=True)
    return replace(program, compute_sets=sets)
