"""A convolution to compute: the program's own, or one derived from it for another algorithm."""

from __future__ import annotations

from math import prod

from engine.frozen import frozen
from engine.ir import ConvolutionDimensionNumbers, Shape, WindowDimension
from engine.program.convolution_size import ConvolutionSize, Phase, phases_of, size_of_phases
from engine.program.views import View


@frozen
class ConvolutionDraft:
    """The arrays of a convolution, and HLO's attributes. The result is row-major."""

    name: str
    op_name: str
    left: View
    right: View
    result: View
    window: tuple[WindowDimension, ...]
    numbers: ConvolutionDimensionNumbers
    feature_groups: int = 1
    batch_groups: int = 1
    may_transform: bool = True
    """Whether sums may be made in other ways than as they are: not where exceptions are detected."""

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.result.shape

    @property
    def groups(self) -> int:
        """The number of groups of the features, or else of the batch."""
        return max(self.feature_groups, self.batch_groups)

    @property
    def is_depthwise(self) -> bool:
        """Whether groups have one feature of the input and of the output, for gradients by the kernel, too."""
        numbers, kernel = self.numbers, self.right.shape.dimensions
        of_inputs = kernel[numbers.kernel_input_feature_dimension]
        inputs = self.shape.dimensions[numbers.output_batch_dimension] if self.batch_groups > 1 else of_inputs
        return inputs == 1 and kernel[numbers.kernel_output_feature_dimension] == self.groups

    @property
    def sources(self) -> list[int]:
        """The input's positions along each spatial dimension."""
        return [self.left.shape.dimensions[d] for d in self.numbers.input_spatial_dimensions]

    @property
    def outputs(self) -> list[int]:
        """The output positions along each spatial dimension."""
        return [self.shape.dimensions[d] for d in self.numbers.output_spatial_dimensions]

    @property
    def dilation(self) -> int:
        """Positions of the dilated input for each position of the input: the product over spatial dimensions."""
        return prod(w.base_dilation for w in self.window)

    @property
    def phases(self) -> list[list[Phase]]:
        """The phases of each spatial dimension."""
        return [phases_of(w, count) for w, count in zip(self.window, self.outputs, strict=True)]

    @property
    def multiply_adds(self) -> int:
        """Products with every tap at every output position; for groups of the batch, of all groups together."""
        features = self.right.shape.dimensions[self.numbers.kernel_output_feature_dimension]
        return self.shape.elements // max(1, features) * self.right.shape.elements

    def size_of(self, phases: tuple[Phase, ...]) -> ConvolutionSize:
        """The sizes of the part that a combination of phases computes."""
        arrays = self.left.shape, self.right.shape, self.shape
        return size_of_phases(phases, arrays, self.numbers, self.groups)
