"""Memory of a program with a smaller batch or in half precision, estimated from its cost report as it is."""

from __future__ import annotations

import re
from dataclasses import replace

from engine.profile.categories import ACTIVATIONS, EXCHANGE_BUFFERS, STREAM_BUFFERS
from engine.profile.convolution import PlannedConvolution
from engine.profile.exchange import Layouts
from engine.profile.liveness import LiveRange, LiveTensor
from engine.profile.plan import best_plan
from engine.profile.program_estimate import Estimate
from engine.profile.superstep import options_of, planned_of
from engine.profile.vertices import kind_of
from engine.program.program import ComputeSet, Program

SINGLE = "f32["
WORTH_PLANNING = 1 / 50
"""Products whose plan takes less than this fraction of a tile's memory are not replanned."""


class Batches:
    """The arrays of a program that have rows of the batch. `size` is the batch, or 0 where no feed has rows."""

    def __init__(self, program: Program, found: Estimate) -> None:
        self.program, self.found = program, found
        fed = [dimensions_of(t) for t in found.liveness if t.category == STREAM_BUFFERS]
        self.size = next((dimensions[0] for dimensions in fed if dimensions), 0)
        self._layouts = Layouts(program.compute_sets)
        self._variables = {tuple(sorted(b.shape.dimensions)) for b in program.variables.values()}

    def has_rows(self, dimensions: tuple[int, ...]) -> bool:
        """Whether arrays of these dimensions have rows of the batch; False if a variable has the same dimensions."""
        if not dimensions or not self.size or tuple(sorted(dimensions)) in self._variables:
            return False
        return self.size in dimensions or dimensions[0] % self.size == 0

    def scaled(self, size: int, half: bool = False) -> list[LiveRange]:
        """The live ranges with a batch of `size`, or with the present batch for 0.

        With `half` the policy is mixed_float16: Keras keeps variables and inputs in float32 and casts them.
        """
        blocks = []
        for block, tensor in zip(self.found.tiles.blocks, self.found.liveness, strict=True):
            factor = 1.0
            if tensor.category in (ACTIVATIONS, STREAM_BUFFERS):
                factor = size / self.size if size and self.has_rows(dimensions_of(tensor)) else 1.0
                factor *= 0.5 if half and tensor.category == ACTIVATIONS and tensor.shape.startswith(SINGLE) else 1.0
            elif tensor.category == EXCHANGE_BUFFERS and block.placement.per_tile and block.buffer is None:
                factor = self._exchanged(self.program.compute_sets[block.first], block.placement.per_tile, size, half)
            blocks.append(replace(block, placement=block.placement.scaled(factor)))
        return blocks

    def _exchanged(self, compute_set: ComputeSet, held: int, size: int, half: bool) -> float:
        """Fraction of a compute set's exchanged bytes that remains with a batch of `size`, or in float16."""
        spans = (*compute_set.reads, *compute_set.writes)
        smaller = bool(size) and any(self.has_rows(span.buffer.shape.dimensions) for span in spans)
        if not smaller and not half:
            return 1.0
        if not compute_set.work_estimate.multiply_adds or kind_of(compute_set.work_estimate.element_type) == "integer":
            return (size / self.size if smaller else 1.0) * (0.5 if half else 1.0)
        target, assumptions = self.found.target, self.found.assumptions
        if held < WORTH_PLANNING * target.bytes_per_tile:
            return 1.0
        options, tiles = options_of(compute_set, assumptions), assumptions.compute_target(target)
        planned = [self._with_batch(each, size) if smaller else each for each in planned_of(compute_set, self._layouts)]
        if half:
            planned = [replace(each, element_type="f16") for each in planned]
        return min(1.0, max(best_plan(each, tiles, options).temporary_bytes for each in planned) / held)

    def _with_batch(self, convolution: PlannedConvolution, size: int) -> PlannedConvolution:
        """The convolution with a batch of `size`: a product has it in its rows, a gradient in the terms of its sums."""
        dimensions = convolution.size
        if dimensions.batch % self.size == 0:
            dimensions = replace(dimensions, batch=dimensions.batch // self.size * size)
        elif dimensions.inputs % self.size == 0:
            dimensions = replace(dimensions, inputs=dimensions.inputs // self.size * size)
        return replace(convolution, size=dimensions)


def dimensions_of(tensor: LiveTensor) -> tuple[int, ...]:
    """The dimensions in a shape such as f32[8,16]; () for a scalar."""
    found = re.search(r"\[([\d,]+)\]", tensor.shape)
    return tuple(int(number) for number in found[1].split(",")) if found else ()
