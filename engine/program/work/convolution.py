"""Convolutions as a program requests them, without an algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from engine.frozen import frozen
from engine.ir import ConvolutionDimensionNumbers, Shape, WindowDimension
from engine.program.buffer import Address
from engine.program.builder import RowBlocks
from engine.program.convolution_size import ConvolutionSize, Phase, has_sums, phases_of, size_of_phases
from engine.program.views import View, whole
from engine.program.work.base import Footprint, Work


@frozen
class Convolution(Work):
    """HLO's convolution of the input `a` by the kernel `b`, arrays with byte strides, to `c`, which is row-major.

    In a loop, `rows` are the blocks of rows that its arrays have in common. A chip plans this work as it is; the host
    replaces it by work of its own before anything is encoded (engine.host.select).
    """

    a: Address
    b: Address
    c: Address
    shape_a: Shape
    shape_b: Shape
    shape_c: Shape
    strides_a: tuple[int, ...]
    strides_b: tuple[int, ...]
    window: tuple[WindowDimension, ...]
    numbers: ConvolutionDimensionNumbers
    feature_groups: int = 1
    batch_groups: int = 1
    rows: RowBlocks | None = None

    @property
    def left(self) -> View:
        """The input."""
        return View(self.a.buffer, self.shape_a, self.a.offset, self.strides_a)

    @property
    def right(self) -> View:
        """The kernel."""
        return View(self.b.buffer, self.shape_b, self.b.offset, self.strides_b)

    @property
    def result(self) -> View:
        """The result."""
        return whole(self.c.buffer, self.shape_c)

    @property
    def phases(self) -> list[list[Phase]]:
        """The phases of each spatial dimension."""
        outputs = (self.shape_c.dimensions[d] for d in self.numbers.output_spatial_dimensions)
        return [phases_of(w, count) for w, count in zip(self.window, outputs, strict=True)]

    @property
    def parts(self) -> tuple[ConvolutionSize, ...]:
        """Sizes of each combination of phases with sums, as a chip multiplies no inserted zeros."""
        arrays, groups = (self.shape_a, self.shape_b, self.shape_c), max(self.feature_groups, self.batch_groups)
        combinations = filter(has_sums, product(*self.phases))
        return tuple(size_of_phases(each, arrays, self.numbers, groups) for each in combinations)

    @property
    def transposed(self) -> str:
        """The operands, of "a" and "b", in which the terms that are nearest in the kernel's memory are not neighbours.

        Terms run along the taps and the input features; a program's planner has to rearrange such operands.
        """
        numbers = self.numbers
        pairs = [
            (numbers.kernel_input_feature_dimension, numbers.input_feature_dimension, 1),
            *(
                (kernel, source, window.window_dilation / window.base_dilation)
                for kernel, source, window in zip(
                    numbers.kernel_spatial_dimensions, numbers.input_spatial_dimensions, self.window, strict=True
                )
            ),
        ]
        long = [each for each in pairs if self.shape_b.dimensions[each[0]] > 1]
        if not long:
            return ""
        kernel, source, step = min(long, key=lambda each: abs(self.strides_b[each[0]]))
        item = self.shape_c.dtype.itemsize
        nearest = {"a": self.strides_a[source] * step, "b": self.strides_b[kernel]}
        return "".join(name for name, stride in nearest.items() if abs(stride) != item)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of each array."""
        for address, view in ((self.a, self.left), (self.b, self.right), (self.c, self.result)):
            if view.shape.elements:
                ends = [s * (n - 1) for s, n in zip(view.strides, view.shape.dimensions, strict=True)]
                begin, last = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
                yield Footprint(address, begin, last + view.item_bytes, address is self.c)
