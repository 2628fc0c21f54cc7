"""Checks of the dimension numbers of gather and scatter from a file."""

from __future__ import annotations

from collections.abc import Sequence

from engine.files.checks import check_for, different, same_types
from engine.ir import Instruction, Shape
from engine.ir.shape import INTEGERS
from engine.ir.shape_rules import array_operands, require


@check_for("gather")
def _gather(instruction: Instruction) -> None:
    operand, indices = array_operands(instruction, 2)
    n, sizes = instruction["gather_dimension_numbers"], instruction["gather_slice_sizes"]
    _index_vectors(indices, n.index_vector_dim, n.start_index_map, operand.rank)
    ascending(n.offset_dims, instruction.array_shape.rank, "offset dims")
    ascending(n.collapsed_slice_dims, operand.rank, "collapsed slice dims")
    absent = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    different(absent, operand.rank, "dimensions that the result lacks")
    require(all(sizes[d] <= 1 for d in absent), f"Expected slice sizes of 1 for {absent}. Received: {sizes}.")
    _batching(
        *(operand, n.operand_batching_dims, n.start_index_map),
        *(indices, n.start_indices_batching_dims, n.index_vector_dim),
    )


@check_for("scatter")
def _scatter(instruction: Instruction) -> None:
    shapes = array_operands(instruction)
    require(len(shapes) % 2 == 1, f"Expected as many updates as inputs. Received: {len(shapes)} operands.")
    count = len(shapes) // 2
    inputs, indices, updates = shapes[:count], shapes[count], shapes[count + 1 :]
    n, operand, update = instruction["scatter_dimension_numbers"], inputs[0], updates[0]
    require(len({s.dimensions for s in inputs}) == 1, "Expected inputs of the same dimensions.")
    require(len({s.dimensions for s in updates}) == 1, "Expected updates of the same dimensions.")
    for each, its in zip(inputs, updates, strict=True):
        same_types([each, its])
    scalars = [s.with_dimensions(()) for s in inputs]
    root = instruction.called[0].root.shape
    returned = [root] if isinstance(root, Shape) else list(root.elements)
    require(returned == scalars, f"Expected a body that returns {', '.join(map(str, scalars))}. Received: {root}.")
    _index_vectors(indices, n.index_vector_dim, n.scatter_dims_to_operand_dims, operand.rank)
    ascending(n.update_window_dims, update.rank, "update window dims")
    ascending(n.inserted_window_dims, operand.rank, "inserted window dims")
    absent = (*n.inserted_window_dims, *n.input_batching_dims)
    different(absent, operand.rank, "dimensions that windows lack")
    kept = [size for d, size in enumerate(operand.dimensions) if d not in absent]
    window = [update.dimensions[d] for d in n.update_window_dims]
    fits = len(kept) == len(window) and all(w <= k for w, k in zip(window, kept, strict=True))
    require(fits, f"Expected windows within {kept}. Received: {window}.")
    _batching(
        *(operand, n.input_batching_dims, n.scatter_dims_to_operand_dims),
        *(indices, n.scatter_indices_batching_dims, n.index_vector_dim),
    )


def ascending(dimensions: Sequence[int], rank: int, name: str) -> None:
    """Raises InternalError unless these are dimensions below `rank`, each larger than the one before."""
    different(dimensions, rank, name)
    require(list(dimensions) == sorted(dimensions), f"Expected {name} in ascending order. Received: {dimensions}.")


def _index_vectors(indices: Shape, vector: int, offsets: Sequence[int], rank: int) -> None:
    require(indices.element_type in INTEGERS, f"Expected indices of an integer type. Received: {indices}.")
    require(vector <= indices.rank, f"Expected an index vector dim of at most {indices.rank}. Received: {vector}.")
    length = 1 if vector == indices.rank else indices.dimensions[vector]
    require(len(offsets) == length, f"Expected {length} dimensions that indices are of. Received: {offsets}.")
    different(offsets, rank, "dimensions that indices are of")


def _batching(
    operand: Shape, mine: Sequence[int], indexed: Sequence[int], indices: Shape, theirs: Sequence[int], vector: int
) -> None:
    """Raises InternalError unless batching dimensions are pairs of one size, and not indexed."""
    different(mine, operand.rank, "batching dims of the operand")
    different(theirs, indices.rank, "batching dims of the indices")
    pairs = len(mine) == len(theirs) and vector not in theirs and not set(mine) & set(indexed)
    sizes = [operand.dimensions[d] for d in mine], [indices.dimensions[d] for d in theirs]
    require(pairs and sizes[0] == sizes[1], f"Expected batching dims of one size. Received: {mine} and {theirs}.")
