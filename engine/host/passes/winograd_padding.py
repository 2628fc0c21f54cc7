"""Winograd's convolutions of arrays without padded copies: tiles read zeros outside of the images themselves."""

from __future__ import annotations

from dataclasses import replace

from engine.host.passes.unpadded import original, reading
from engine.ir.shape import Shape
from engine.program.program import Program
from engine.program.rewriter import ProgramRewriter
from engine.program.work.tile_transform import TileTransform
from engine.program.work.winograd import WinogradProduct
from engine.program.work.winograd_gradient import WinogradGradient
from engine.program.work.winograd_tiles import Depth


def read_unpadded(program: Program) -> Program:
    """Lets Winograd's convolutions and gradients read arrays without their padding, and drops the padded copies."""
    rewriter = ProgramRewriter(program)
    copies: set[int] = set()
    for at, each in enumerate(program.compute_sets):
        if isinstance(each.work, (WinogradProduct, WinogradGradient)):
            copies |= _inputs_in_place(rewriter, at, each.work)
        if isinstance(each.work, WinogradGradient):
            copies |= _gradients_in_place(rewriter, at)
        if isinstance(each.work, TileTransform) and each.work.transform in ("inputs", "gradients"):
            copies |= _tiles_in_place(rewriter, at, each.work)
    rewriter.remove(at for at in copies if not rewriter.uses.readers(program.compute_sets[at].writes[0].buffer))
    return rewriter.result() if copies else program


def _inputs_in_place(rewriter: ProgramRewriter, at: int, work: WinogradProduct | WinogradGradient) -> set[int]:
    """Replaces the padded inputs of compute set `at`; returns the number of their copy, if there is one."""
    if work.depth != Depth():
        return set()
    found = original(rewriter, at, work.a, (work.images, work.features), work.strides_a, _item(work))
    if found is None:
        return set()
    made = replace(work, a=found.address, strides_a=found.strides, size=found.size, low=found.low)
    rewriter.replace(at, reading(replace(rewriter.sets[at], work=made), work.a, found.span))
    return {found.copy}


def _gradients_in_place(rewriter: ProgramRewriter, at: int) -> set[int]:
    """Reads the gradients of outputs in place, without the copy that pads them, if the copy has all of them."""
    work = rewriter.sets[at].work
    assert isinstance(work, WinogradGradient)
    found = original(rewriter, at, work.gradients, (work.images, work.outputs), work.strides_g, _item(work))
    if found is None or found.low != (0, 0) or found.size != work.field:
        return set()
    made = replace(work, gradients=found.address, strides_g=found.strides)
    rewriter.replace(at, reading(replace(rewriter.sets[at], work=made), work.gradients, found.span))
    return {found.copy}


def _tiles_in_place(rewriter: ProgramRewriter, at: int, work: TileTransform) -> set[int]:
    """Reads the tiles of a convolution with a wide kernel in place, without the copy that pads its images."""
    old = work.source
    if old.first != (0, 0) or 0 in old.elements:
        return set()
    images = work.images + sum(old.skipped)
    found = original(rewriter, at, old.address, (images, work.features), (old.image, *old.elements))
    if found is None:
        return set()
    rows, columns = (min(have, read - low) for have, read, low in zip(found.size, old.size, found.low, strict=True))
    if rows < 1 or columns < 1:
        return set()
    image, row, column = found.strides
    source = replace(
        old,
        address=found.address,
        image=image,
        tiles=(row * old.step[0], column * old.step[1]),
        elements=(row, column),
        phases=(row, column),
        size=(rows, columns),
        first=_negative(found.low),
    )
    made = replace(work, source=source)
    rewriter.replace(at, reading(replace(rewriter.sets[at], work=made), old.address, found.span))
    return {found.copy}


def _negative(low: tuple[int, int]) -> tuple[int, int]:
    return -low[0], -low[1]


def _item(work: WinogradProduct | WinogradGradient) -> int:
    return Shape(work.element_type).dtype.itemsize
