"""The arithmetic of a compute set as this processor runs it.

It counts the multiply-adds of products, the operations of Winograd's transforms and those of fused loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from engine.codelets.convolutions.cook_toom import Axes, transform_of, transposed, whole_vectors
from engine.codelets.convolutions.linear_forms import applied
from engine.codelets.language.lanes import Lanes, is_complex
from engine.emit.contraction import contracted
from engine.emit.loops import begun
from engine.emit.point import Point, element_type_of
from engine.host.convolutions.winograd_work import WinogradGradient, WinogradProduct, WinogradTiles
from engine.machine_code.llvm import ir
from engine.machine_code.optimising import WRITTEN_IN_VECTORS, binding, optimise
from engine.machine_code.processor import lanes
from engine.program.nest import Apply, Constant, MultiplyAdd, Nest
from engine.program.program import ComputeSet
from engine.program.work.base import Work
from engine.program.work.contraction import Contraction
from engine.program.work.fused_loop import FusedLoop

ARITHMETIC = ("fadd", "fsub", "fmul", "fdiv")
CALLED = ("llvm.fma.", "llvm.fmuladd.", "llvm.sqrt.", "llvm.x86.avx512.rcp14.", "llvm.x86.avx512.rsqrt14.")
"""The names of intrinsics that are one operation begin so."""


def run_multiply_adds(compute_set: ComputeSet) -> int:
    """The multiply-adds of one call of a compute set. A transform has fewer than the estimate for the chip."""
    counts = [_of_product(each) for each in works_in(compute_set.work)]
    known = [each for each in counts if each is not None]
    return sum(known) if known else compute_set.work_estimate.multiply_adds


def run_operations(compute_set: ComputeSet) -> int:
    """The floating-point operations of one call of a compute set, where a multiply-add is one.

    A processor starts at most as many of them at a time as multiply-adds. Conversions, comparisons and operations of
    integers do not count. Code that a function has for rare arguments, such as large ones of sines, does.
    """
    others = sum(_beside_products(each) for each in works_in(compute_set.work))
    return run_multiply_adds(compute_set) + others


def works_in(value: Any) -> Iterator[Work]:
    """Yield a work and all works that are parts of it."""
    if isinstance(value, tuple):
        for each in value:
            yield from works_in(each)
    elif is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Work):
            yield value
        for each in fields(value):
            yield from works_in(getattr(value, each.name))


def _of_product(work: Work) -> int | None:
    """The multiply-adds of a product; None for other work."""
    if isinstance(work, Contraction):
        return int(np.prod(work.size))
    if isinstance(work, WinogradTiles):
        return work.multiply_adds
    return None


def _beside_products(work: Work) -> int:
    """The operations of a fused loop, and those of the transforms of tiles."""
    if isinstance(work, FusedLoop):
        return work.points * loop_operations(work.nest)
    if isinstance(work, WinogradProduct):
        return _transforms(work, "inputs", "products")
    if isinstance(work, WinogradGradient):
        return _transforms(work, "inputs", "gradients")
    return 0


def _transforms(work: WinogradTiles, of_a: str, of_c: str) -> int:
    """The operations that transform the tiles of A once, and those of C."""
    a, c = work.part_features * len(work.parts), whole_vectors(work.c.features)
    operations = a * transform_operations(of_a, work.axes) + c * transform_operations(of_c, work.axes)
    return work.tile_count * operations


@cache
def transform_operations(kind: str, axes: Axes) -> int:
    """The operations by which a transform takes a tile of one feature."""
    transform = transform_of(kind, axes)
    height, width = len(transform.rows), len(transposed(transform.columns))
    return width * _of_matrix(transform.rows) + height * _of_matrix(transform.columns)


def _of_matrix(matrix: tuple[tuple[Any, ...], ...]) -> int:
    vector = ir.VectorType(ir.FloatType(), lanes())
    builder, values = _function([vector] * len(matrix[0]))
    applied(builder, matrix, values)
    return _counted(str(builder.function))


@cache
def loop_operations(nest: Nest) -> int:
    """The operations of a point of a nest, after LLVM has shared what several of them compute; 0 if any is complex."""
    nest, width = contracted(nest), lanes()
    kinds = [element_type_of(nest.nodes, number, nest.accesses) for number in range(len(nest.nodes))]
    results = [store.node for store in nest.stores] + [value for each in nest.reductions for value in each.values]
    if any(is_complex(each) for each in kinds):
        return 0
    given = [k for k, node in enumerate(nest.nodes) if not isinstance(node, Apply | Constant | MultiplyAdd)]
    of = Lanes(begun("types"), width).type
    builder, values = _function([of(kinds[k]) for k in given], [of(kinds[k]) for k in results])
    ready = dict(zip(given, values, strict=False))
    point = Point(Lanes(builder, width), nest.nodes, nest.accesses, [], [], None, ready)
    for number, place in zip(results, values[len(given) :], strict=True):
        builder.store(point.value(number), place)
    builder.ret_void()
    module = binding.parse_assembly(str(builder.module))
    optimise(module, WRITTEN_IN_VECTORS)
    return _counted(str(module)) + sum(len(each.values) for each in nest.reductions)


def _function(operands: list[ir.Type], results: list[ir.Type] | None = None) -> tuple[ir.IRBuilder, list[ir.Value]]:
    """A builder in a function of vectors, and of places of the results."""
    places = [each.as_pointer() for each in results or []]
    function = ir.Function(ir.Module("counted"), ir.FunctionType(ir.VoidType(), [*operands, *places]), "counted")
    return ir.IRBuilder(function.append_basic_block("entry")), list(function.args)


def _counted(text: str) -> int:
    """The operations in LLVM IR."""
    lines = [line.split(" = ", 1)[1] for line in text.splitlines() if " = " in line]
    plain = sum(line.split(" ", 1)[0] in ARITHMETIC for line in lines)
    return plain + sum("call" in line and any(name in line for name in CALLED) for line in lines)
