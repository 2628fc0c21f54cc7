"""Matrix products on the chip: planned as convolutions without taps, as poplin does."""

from __future__ import annotations

from engine.frozen import frozen
from engine.profile.convolution import PlannedConvolution
from engine.profile.options import DEFAULT_OPTIONS, ProductOptions
from engine.profile.plan import Plan, best_plan
from engine.program.convolution_size import ConvolutionSize
from engine.target import Target


@frozen
class Product:
    """C[batch, row, column] = sum over k of A[batch, row, k] * B[batch, k, column], inputs "f32" or "f16".

    `distinct_a` and `distinct_b` are the numbers of elements in memory: fewer than rows * k if an element is read
    several times. `resident` is the operand, "a" or "b", on the tiles that need it. `transposed` is "", "a", "b"
    or "ab": the operands whose k is not innermost in memory.
    """

    batches: int
    rows: int
    columns: int
    k: int
    element_type: str
    distinct_a: int
    distinct_b: int
    resident: str = ""
    transposed: str = ""

    @property
    def convolution(self) -> PlannedConvolution:
        """The product as a convolution whose batch is its rows, with one position each."""
        return PlannedConvolution(
            ConvolutionSize(groups=self.batches, batch=self.rows, inputs=self.k, outputs=self.columns),
            self.element_type,
            self.resident,
            self.transposed,
            reuse_a=min(1.0, self.distinct_a / max(1, self.batches * self.rows * self.k)),
            reuse_b=min(1.0, self.distinct_b / max(1, self.batches * self.columns * self.k)),
        )


def plan_product(product: Product, target: Target, options: ProductOptions = DEFAULT_OPTIONS) -> Plan:
    """The cheapest partition of a product within the memory that the options grant."""
    return best_plan(product.convolution, target, options)
