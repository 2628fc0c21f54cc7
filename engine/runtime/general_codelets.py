"""The codelets that can be compiled before a machine's first model, as all or many models need them.

The project's installation compiles them (engine/installation.py).
"""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pkgutil import walk_packages

from engine import codelets
from engine.codelets.convolutions.cook_toom import LARGE, SMALL, axes_of
from engine.codelets.convolutions.depthwise_windows import depthwise_forward, depthwise_gradient
from engine.codelets.convolutions.overlap_add import overlap_add
from engine.codelets.convolutions.window_filling import ColumnRun
from engine.codelets.convolutions.winograd import kernel_transform, product_of_tiles
from engine.codelets.convolutions.winograd_gradient import gradient_of_tiles, sums_of_taps
from engine.codelets.language.build import Codelet
from engine.codelets.language.lanes import F16_IN_F32
from engine.codelets.pooling.overlapping_pool_gradient import overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.codelets.pooling.pool_windows import pool_windows
from engine.codelets.products.contract_bf16x3 import contract_bf16x3
from engine.codelets.products.contract_half import contract_half
from engine.codelets.products.contract_plain import contract_for
from engine.machine_code.processor import may_use_matrix_registers, widens_beside_products
from engine.runtime import executor


def general_codelets() -> list[Codelet]:
    """The named codelets of modules, those of usual kinds, and those for matrix registers where there are any."""
    modules = [import_module(each.name) for each in walk_packages(codelets.__path__, f"{codelets.__name__}.")]
    found = [each for module in (executor, *modules) for each in vars(module).values() if isinstance(each, Codelet)]
    without = () if may_use_matrix_registers() else (contract_bf16x3,)
    return list(dict.fromkeys(each for each in (*found, *usual_codelets()) if each not in without))


def usual_codelets() -> list[Codelet]:
    """Codelets of kinds that most models of images, and most with 16-bit floats, need."""
    images = [
        pool_gradient("UGE", "f32"),  # max pooling whose windows do not overlap, such as 2 x 2
        pool_windows("maximum-number", "f32", 2, 2),
        pool_windows("maximum-number", "f32", 3, 2),  # 3 x 3 with strides of 2
        pool_windows("add", "f32", 2, 2),
        overlapping_pool_gradient("UGE", "f32", 3, 2),
        overlap_add("f32"),  # convolutions of stride 1 with few output features
    ]
    for axes in (SMALL, LARGE):  # convolutions of 3 x 3 taps, and their gradients by kernels
        images += [kernel_transform("f32", axes), product_of_tiles("f32", "f32", axes)]
        images += [gradient_of_tiles("f32", axes), sums_of_taps("f32", axes)]
    one, two = axes_of(1)[0], axes_of(2)[0]
    for axes in ((two, two), (two, one), (one, two)):  # 3 x 3 taps with strides of 2, and the phases of their gradients
        images += [kernel_transform("f32", axes), product_of_tiles("f32", "f32", axes)]
    for step, taps in product((1, 2), (3, 5)):  # depthwise convolutions, and their gradients by kernels
        images += [depthwise_forward(ColumnRun(step, taps)), depthwise_gradient(ColumnRun(step, taps))]
    backward = [ColumnRun(1, taps, True) for taps in (2, 3, 5)]
    images += map(depthwise_forward, (*backward, ColumnRun(1, 1)))  # their gradients by images
    rounding = contract_half("f16", "f16", beside=widens_beside_products(), right=F16_IN_F32)
    products = [contract_for(*types)[0] for types in (("f16",), ("f16", "f32"), ("bf16",))]
    return [*images, *products, rounding]
