"""Division of products into units: along rows, columns, terms or batches, by sizes alone."""

from __future__ import annotations

from math import ceil

from engine.errors import UnsupportedOperation
from engine.frozen import frozen
from engine.program.builder import RowBlocks
from engine.program.work.base import MOST_UNITS
from engine.program.work.contraction import Grid
from engine.program.work.offsets import GROUP

SMALL = 150_000
"""Multiply-adds below which one unit computes the whole product."""
PANEL = 64
LEAST_HEIGHT = 24
LONG_K = 2048
FEW_ROWS = 128
FEW_SPLITS = 4
SHARE_ELEMENTS = 32_768
"""Elements of a weight that are worth a unit of their own."""
FAR_PARTIALS = 1 << 20
"""Elements of partial sums that take longer to write and read than a weight with fewer, from beyond the caches."""
SHARED_ELEMENTS = 1 << 18
"""Elements of B up to which each worker may keep all of it in its cache, from iteration to iteration of a loop."""
LARGE_BATCH, BLOCK_ELEMENTS, LEAST_BLOCK = 1 << 17, 1 << 15, 16
"""Elements of one batch of A or of a result from which on units are blocks of rows; most elements and fewest rows of a

block. An attention's probabilities are then still in a near cache when the next compute sets read them."""
SMALL_DEPTHWISE = 20_000
"""Fewest multiply-adds of a depthwise unit; each of them loads an element of A."""
MOST_DEPTHWISE_UNITS = 16
WINDOWED_SPLITS = 8
"""Parts into which k is split, with sums to add, in the gradient of a grouped convolution by its kernel."""
DEPTHWISE_ROWS = 9
"""Rows that a kernel takes at a time."""
MULTIPLIED = ("f16", "bf16", "c64", "c128", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64")
"""Element types of products."""


def check_multiplied(operand_type: str, result_type: str) -> None:
    """Raises UnsupportedOperation for element types that cannot be multiplied."""
    for name in (operand_type, result_type):
        if name not in MULTIPLIED:
            raise UnsupportedOperation(
                f"Expected an element type among {', '.join(MULTIPLIED)}. Received: a dot of {name}. "
                "Convert its operands."
            )
    if operand_type[0] == "c" and result_type[0] != "c":
        raise UnsupportedOperation(
            f"Expected a complex result of a dot of {operand_type}. Received: {result_type}. Use {operand_type}."
        )


def weight_share(rows: int, columns: int) -> int:
    """Rows of a weight [rows, columns] that belong to one unit, in every contraction of the weight.

    Units own whole rows: with parts of rows, the processor would prefetch a neighbour's parts, too.
    """
    shares = 2
    while shares < MOST_UNITS and shares * SHARE_ELEMENTS < rows * columns:
        shares *= 2
    return -(-rows // shares)


@frozen
class ProductSize:
    """Sizes and operand layouts that decide how a product is divided into units.

    `fills` means that all of C is written, `of_state` that B is a weight, `dense_columns` that its columns are
    adjacent, `grouped` that groups of A's rows are adjacent, `windowed` that the host copies windows of images.
    """

    batches: int
    rows: int
    columns: int
    k: int
    fills: bool = True
    of_state: bool = False
    dense_columns: bool = True
    grouped: bool = False
    depthwise: bool = False
    windowed: bool = False

    @property
    def multiply_adds(self) -> int:
        return self.batches * self.rows * self.columns * self.k


def grid(size: ProductSize, iteration_rows: RowBlocks | None = None) -> Grid:
    """Chooses a grid along the rows that a loop's arrays have in common, if B is small; else one with enough units."""
    rows, columns, k = size.rows, size.columns, size.k
    if size.depthwise:
        return _depthwise_grid(size)
    if size.windowed and size.multiply_adds > SMALL and k >= LONG_K // 8 and size.fills:
        return Grid(rows, columns, -(-k // WINDOWED_SPLITS))
    if iteration_rows is not None and rows == iteration_rows.extent and size.batches == 1:
        if columns * k <= SHARED_ELEMENTS:
            return Grid(iteration_rows.grain, max(columns, 1), max(k, 1))
    return _even_grid(size)


def _even_grid(size: ProductSize) -> Grid:
    """Divides a weight's rows where few rows of A use it; else rows, columns or k, into enough units."""
    rows, columns, k, batches = size.rows, size.columns, size.k, size.batches
    whole = Grid(max(rows, 1), max(columns, 1), max(k, 1))
    if size.multiply_adds <= SMALL:
        return whole
    units = int(min(MOST_UNITS, max(2, size.multiply_adds // SMALL)))
    units += units % 2  # an odd number leaves one of two workers idle
    if batches > 1 and batches >= units // 2:
        return Grid(_block_of_batch(rows, max(columns, k, 1)), whole.columns, whole.k)
    # Partial sums need `fills`: adding them writes all of C.
    if size.fills and batches == 1 and rows <= FEW_ROWS and size.of_state:
        return _grid_of_weight(size, whole, units)
    if batches == 1 and k <= FEW_ROWS and rows * columns >= SHARE_ELEMENTS:
        return Grid(weight_share(rows, columns), columns, k)
    panels = -(-columns // PANEL)
    if panels >= 2 and rows < 96:
        cut = Grid(max(rows, 1), PANEL * -(-panels // units), max(k, 1))
    else:
        cut = Grid(_height(rows, units, GROUP if size.grouped else 2), max(columns, 1), max(k, 1))
    made = -(-rows // cut.rows) * -(-columns // cut.columns) * batches
    if size.fills and made < 8 and k >= LONG_K and rows * columns <= 1 << 20:
        splits = min(16, k // (LONG_K // 4))
        return Grid(whole.rows, whole.columns, -(-k // splits))
    return cut


def _block_of_batch(rows: int, longer: int) -> int:
    """Rows of one unit of a batch: all, or in a large batch the largest divisor of its rows that fits in a block."""
    if rows * longer < LARGE_BATCH:
        return max(rows, 1)
    most = max(1, BLOCK_ELEMENTS // longer)
    block = next(height for height in range(min(rows, most), 0, -1) if rows % height == 0)
    return block if block >= LEAST_BLOCK else rows


def _depthwise_grid(size: ProductSize) -> Grid:
    """Divides a depthwise product along rows, or along k where there are few rows, for all batches at once."""
    rows, k = size.rows, size.k
    units = min(MOST_DEPTHWISE_UNITS, size.multiply_adds // SMALL_DEPTHWISE // 2 * 2)
    if units < 2:
        return Grid(rows, 1, k)
    if rows >= units * DEPTHWISE_ROWS:
        return Grid(-(-rows // (units * DEPTHWISE_ROWS)) * DEPTHWISE_ROWS, 1, k)
    return Grid(rows, 1, -(-k // units)) if size.fills and k >= LONG_K // 8 else Grid(-(-rows // 2), 1, k)


def _height(rows: int, units: int, step: int) -> int:
    """Rows per unit, a multiple of `step`: at most `units` units, an even number, of about equal size."""
    most = max(1, min(units, rows // LEAST_HEIGHT) // 2)
    heights = [-(-rows // (2 * pairs * step)) * step for pairs in range(most, max(1, most // 2) - 1, -1)]
    # An odd number of units is as bad as a last one with fewer rows: one of two workers waits.
    return min(heights, key=lambda height: height * ceil(ceil(rows / height) / 2))


def _grid_of_weight(size: ProductSize, whole: Grid, units: int) -> Grid:
    """Divides a weight into rows of each unit's own: slices of k, or of the columns if the weight is transposed.

    Partial sums of very many columns (a vocabulary's) would leave the caches: units then own columns.
    """
    k, columns = size.k, size.columns
    if size.dense_columns:
        share = weight_share(k, columns)
        # Partial sums, written and read, should cost less than the weight; half of the units own half of its rows.
        while -(-k // share) > FEW_SPLITS and -(-k // share) * whole.rows * 4 > k:
            share *= 2
        partial_rows = -(-k // share) * whole.rows
        if 2 * partial_rows > k and partial_rows * columns >= FAR_PARTIALS:
            return Grid(whole.rows, PANEL * -(-columns // (PANEL * units)), whole.k)
        return Grid(whole.rows, whole.columns, share)
    share = weight_share(columns, k)
    return Grid(whole.rows, PANEL * max(1, share // PANEL), whole.k)
