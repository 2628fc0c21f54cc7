"""A new kernel for convolutions is one family: parameters, kernel, work and bid together, and one entry in the choice.

The family of this file computes convolutions of one feature by one tap.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest

from engine.algorithms import selections
from engine.codelets.language.build import codelet
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.memory import load_f32, store_f32
from engine.codelets.language.record import Address as AddressWord
from engine.codelets.language.record import Record, block, word
from engine.compile import build_program
from engine.host import select
from engine.host.convolutions.part import ConvolutionPart
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.buffer import Address
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import ComputeSet, Span, WorkEstimate
from engine.program.work.base import Footprint
from tests.engine.running import check

WORTH = 1.0
"""Share of the contraction's time below which this family is worth it."""


class Scaled(Record):
    """Parameters of `scaled_image`. Unit: an element."""

    a: AddressWord
    b: AddressWord
    c: AddressWord


@codelet
def scaled_image(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Multiplies the elements lo <= element < hi by the only tap."""
    factor = load_f32(word(parameters, Scaled.B))
    for at in range(lo, hi):
        store_f32(word(parameters, Scaled.C) + 4 * at, load_f32(word(parameters, Scaled.A) + 4 * at) * factor)


@dataclass(frozen=True, slots=True)
class ScaledImage(HostWork):
    """C has the elements of A, times the one element of B."""

    a: Address
    b: Address
    c: Address
    elements: int

    def footprints(self) -> Iterator[Footprint]:
        """All elements."""
        for address, elements in ((self.a, self.elements), (self.b, 1), (self.c, self.elements)):
            yield Footprint(address, 0, 4 * elements, address is self.c)

    def encode(self) -> Encoded:
        """The fields of `Scaled`."""
        return Encoded.of(scaled_image, block(Scaled(a=self.a, b=self.b, c=self.c)))


def bids(size: ConvolutionSize, element_type: str) -> dict[str, float]:
    """A quarter of the contraction's time, for one feature and one tap."""
    features = size.groups, size.inputs, size.outputs, *size.taps
    return {"scaled image": 0.25} if element_type == "f32" and set(features) == {1} else {}


def transformed(part: ConvolutionPart) -> list[ComputeSet] | None:
    """One compute set, where the positions of all images follow each other in both arrays."""
    elements = prod((part.batch.count, *part.size.field))
    if any(not axis.is_inside or axis.step != 1 or axis.source != axis.count for axis in part.axes):
        return None
    work = ScaledImage(part.begin, part.b, part.c, elements)
    reads, writes = [Span(part.a.buffer), Span(part.b.buffer)], [Span(part.c.buffer)]
    return [ComputeSet(part.name, work, elements, reads, writes, WorkEstimate(elements), part.op_name)]


def convolution(taps: int) -> Module:
    b, window = Builder(), WindowDimension(taps)
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    x, kernel = b.parameter("f32", (3, 5, 7, 1)), b.parameter("f32", (taps, taps, 1, 1))
    return b.module(b.convolution(x, kernel, (window, window), numbers))


@pytest.mark.parametrize("taps", [1, 2])
def test_a_family_bids_runs_and_is_listed(taps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "TRANSFORMS", (*select.TRANSFORMS, sys.modules[__name__]))
    module = convolution(taps)
    (found,) = selections(build_program(module, ["variable", "variable"], {}))
    assert found.bids[0].startswith("scaled image ") == (taps == 1)
    assert found.work == (["ScaledImage"] if taps == 1 else ["Contraction"])
    values = np.random.default_rng(0).normal(size=(3, 5, 7, 1)).astype(np.float32)
    values[0, 0, 0], values[2, 4, 6] = np.inf, np.nan
    check(module, [values, np.full((taps, taps, 1, 1), -1.5, np.float32)])
