"""The linear transforms of Winograd's F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3), of blocks of vectors in registers.

With B, G and A as in Lavin and Gray (2015), the outputs are A'[(G g G') * (B' d B)]A for a kernel g and a tile d of
inputs; the gradient by the kernel is G'[(A y A') * (B' d B)]G, summed over tiles y of the outputs' gradients. Lanes run
over features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from engine.codelets.convolutions import cook_toom
from engine.codelets.convolutions.cook_toom import OUTPUTS, WIDE_OUTPUTS, WINDOW, Matrix, side
from engine.codelets.convolutions.linear_forms import applied
from engine.codelets.language import vector
from engine.codelets.language.build import Inner, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, places
from engine.codelets.language.switched import outlined
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
Vectors = Sequence[ir.Value]


Along = Callable[[ir.IRBuilder, Vectors], list[ir.Value]]
Rows = tuple[int, ...]


class BlockTransform(NamedTuple):
    """A transform of a block of `size` x `size` vectors to `results` x `results`, for `tile` x `tile` outputs.

    `along` is applied to the columns of the block, then to the rows of its results. `groups` has some of its rows each,
    with the part of `along` that makes them, if all rows at once do not fit in registers.
    """

    name: str
    size: int
    results: int
    tile: int
    along: Along
    groups: tuple[tuple[Rows, Along], ...] = ()


def _of_input(builder: ir.IRBuilder, d: Vectors) -> list[ir.Value]:
    """The product B' d."""
    return [
        builder.fsub(d[0], d[2]),
        builder.fadd(d[1], d[2]),
        builder.fsub(d[2], d[1]),
        builder.fsub(d[1], d[3]),
    ]


def _of_kernel(builder: ir.IRBuilder, g: Vectors) -> list[ir.Value]:
    """The product G g."""
    half = vector.splat(builder, F32(0.5))
    ends, middle = builder.fmul(half, builder.fadd(g[0], g[2])), builder.fmul(half, g[1])
    return [g[0], builder.fadd(ends, middle), builder.fsub(ends, middle), g[2]]


def _of_products(builder: ir.IRBuilder, m: Vectors) -> list[ir.Value]:
    """The product A' m."""
    return [
        builder.fadd(m[0], builder.fadd(m[1], m[2])),
        builder.fsub(builder.fsub(m[1], m[2]), m[3]),
    ]


def _of_gradient(builder: ir.IRBuilder, y: Vectors) -> list[ir.Value]:
    """The product A y, but its last element has the opposite sign."""
    return [y[0], builder.fadd(y[0], y[1]), builder.fsub(y[0], y[1]), y[1]]


def _of_sums(builder: ir.IRBuilder, m: Vectors) -> list[ir.Value]:
    """The product G' m, where the last element of m has the opposite sign."""
    half = vector.splat(builder, F32(0.5))
    total = builder.fmul(half, builder.fadd(m[1], m[2]))
    difference = builder.fmul(half, builder.fsub(m[1], m[2]))
    return [builder.fadd(m[0], total), difference, builder.fsub(total, m[3])]


class Transforms(NamedTuple):
    """Transforms of tiles of one size: of inputs, kernels, products, outputs' gradients, and sums of products."""

    input: BlockTransform
    kernel: BlockTransform
    products: BlockTransform
    gradient: BlockTransform
    sums: BlockTransform


def _transforms(tile: int, *along: Along) -> Transforms:
    of_input, of_kernel, of_products, of_gradient, of_sums = along
    name = "winograd" if tile == OUTPUTS else f"winograd_{tile}"
    return Transforms(
        BlockTransform(f"{name}_input", side(tile), side(tile), tile, of_input),
        BlockTransform(f"{name}_kernel", WINDOW, side(tile), tile, of_kernel),
        BlockTransform(f"{name}_products", side(tile), tile, tile, of_products),
        BlockTransform(f"{name}_gradient", tile, side(tile), tile, of_gradient),
        BlockTransform(f"{name}_sums", side(tile), WINDOW, tile, of_sums),
    )


def _by_cook_toom(tile: int) -> Transforms:
    kernel, products = cook_toom.of_taps(side(tile), WINDOW), cook_toom.of_products(side(tile), tile)
    gradient, sums = cook_toom.transposed(products), cook_toom.transposed(kernel)
    inputs = cook_toom.of_inputs(side(tile))
    made = _transforms(tile, *(partial(_applied, each) for each in (inputs, kernel, products, gradient, sums)))
    return made._replace(input=_in_groups(made.input, inputs), gradient=_in_groups(made.gradient, gradient))


def _in_groups(transform: BlockTransform, matrix: Matrix) -> BlockTransform:
    """The transform in groups of two rows, which have common parts: all six columns of a group fit in 16 registers."""
    if registers() > 16:
        return transform
    inside = range(1, len(matrix) - 1, 2)
    groups = [(0, len(matrix) - 1), *((row, row + 1) for row in inside)]
    return transform._replace(
        groups=tuple((rows, partial(_applied, tuple(matrix[row] for row in rows))) for rows in groups)
    )


def _applied(matrix: Matrix, builder: ir.IRBuilder, values: Vectors) -> list[ir.Value]:
    return applied(builder, matrix, values)


TRANSFORMS = {
    OUTPUTS: _transforms(OUTPUTS, _of_input, _of_kernel, _of_products, _of_gradient, _of_sums),
    WIDE_OUTPUTS: _by_cook_toom(WIDE_OUTPUTS),
}
"""The transforms, by the outputs along each side of a tile."""


@cache
def transforming(transform: BlockTransform, store: str = "f32") -> Inner:
    """Makes the function that transforms the float32 blocks of `features` features to the element type `store`."""
    whole, rest = _intrinsic(transform, False, store), _intrinsic(transform, True, store)
    size = vector.BYTES[store]

    @inner
    def transform_features(source: int, source_offsets: int, target: int, target_offsets: int, features: int) -> None:
        """Transforms a block whose vector i is at source + source_offsets[i], to vectors at target + target_offsets[i].

        Offsets are int64 tables. Results are stored from the last to the first, so where some share an address, the
        first of them remains.
        """
        vectors = features // LANES
        if vectors > 0:
            whole(source, source_offsets, target, target_offsets, vectors)
        done = LANES * vectors
        if features % LANES != 0:
            rest(source + 4 * done, source_offsets, target + size * done, target_offsets, features % LANES)

    return transform_features


def _intrinsic(transform: BlockTransform, masked: bool, store: str) -> Any:
    """Makes the intrinsic for a number of whole vectors, or for some lanes of one."""

    @intrinsic
    def transform_vectors(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        name = f"{transform.name}_transform" + "_masked" * masked
        outlined(builder, name, partial(_write, transform, masked, store), arguments)

    return transform_vectors


def _write(transform: BlockTransform, masked: bool, store: str, builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Writes the function of a transform."""
    source, source_offsets, target, target_offsets, count = arguments
    mask = vector.lane_mask(builder, count) if masked else None
    sources = places(builder, source, source_offsets, transform.size**2)
    targets = places(builder, target, target_offsets, transform.results**2)
    end = I64(4 * LANES) if masked else builder.mul(count, I64(4 * LANES))
    loop = EmittedLoop(builder, "vectors", I64(0), end, I64(4 * LANES))
    block = [vector.load_vector(builder, builder.add(each, loop.at), mask) for each in sources]
    made = both_ways(builder, transform, block)
    written = offset_in(builder, loop.at, store)
    for value, address in reversed(list(zip(made, targets, strict=True))):
        vector.store_vector(builder, value, builder.add(address, written), mask, store)
    loop.close()


def offset_in(builder: ir.IRBuilder, offset: ir.Value, element_type: str) -> ir.Value:
    """The offset in an array of this type, from the offset of the same element among float32 numbers."""
    return offset if vector.BYTES[element_type] == 4 else builder.lshr(offset, I64(1))


def both_ways(builder: ir.IRBuilder, transform: BlockTransform, block: Vectors) -> list[ir.Value]:
    """Transforms a block along its columns and then along its rows; returns the result row by row."""
    size = transform.size
    columns = [transform.along(builder, block[column::size]) for column in range(size)]
    return [value for row in zip(*columns, strict=True) for value in transform.along(builder, row)]
