"""The codelets that can be compiled before a machine's first model, as all or many models need them.

The project's installation compiles them (engine/installation.py).
"""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pkgutil import walk_packages

from engine import codelets
from engine.codelets.convolutions.cook_toom import SMALL, Axes, axes_of, transform_of
from engine.codelets.convolutions.depthwise_windows import depthwise_forward, depthwise_gradient
from engine.codelets.convolutions.few_features import MOST_FACTORS, RowRun, few_features
from engine.codelets.convolutions.linear_forms import transforming
from engine.codelets.convolutions.overlap_add import overlap_add
from engine.codelets.convolutions.window_filling import ColumnRun
from engine.codelets.convolutions.winograd import kernel_transform
from engine.codelets.convolutions.winograd_runs import reading_runs, writing_runs
from engine.codelets.fourier.butterflies import FourierLanes, passing
from engine.codelets.fourier.fourier import fourier, radices_here
from engine.codelets.language.build import Codelet, MachineCode
from engine.codelets.language.lanes import F16_IN_F32
from engine.codelets.pooling.overlapping_pool_gradient import overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.codelets.pooling.pool_windows import pool_windows
from engine.codelets.products.contract_bf16x3 import contract_bf16x3
from engine.codelets.products.contract_half import contract_half
from engine.codelets.products.contract_plain import contract_for
from engine.codelets.products.pack_parts import pack_parts
from engine.codelets.scan import scan
from engine.machine_code.processor import lanes, may_use_matrix_registers, widens_beside_products
from engine.runtime import executor


def general_codelets() -> list[MachineCode]:
    """The named codelets of modules, those of usual kinds, and those for matrix registers where there are any."""
    modules = [import_module(each.name) for each in walk_packages(codelets.__path__, f"{codelets.__name__}.")]
    found = [each for module in (executor, *modules) for each in vars(module).values() if isinstance(each, Codelet)]
    without = () if may_use_matrix_registers() else (contract_bf16x3, pack_parts)
    return list(dict.fromkeys(each for each in (*found, *usual_codelets(), *usual_transforms()) if each not in without))


def usual_codelets() -> list[Codelet]:
    """Codelets of kinds that most models of images, of sound, and most with 16-bit floats, need."""
    images = [
        pool_gradient("UGE", "f32"),  # max pooling whose windows do not overlap, such as 2 x 2
        pool_windows("maximum-number", "f32", 2, 2),
        pool_windows("maximum-number", "f32", 3, 2),  # 3 x 3 with strides of 2
        pool_windows("add", "f32", 2, 2),
        overlapping_pool_gradient("UGE", "f32", 3, 2),
        overlap_add("f32"),  # convolutions of stride 1 with few output features
        kernel_transform("f32"),
        few_features(RowRun(2, 1)),  # the last layers of autoencoders and GANs, also with strides of 2
        few_features(RowRun(3, 1)),
        few_features(RowRun(3 if MOST_FACTORS >= 9 else 1, 3)),
    ]
    for step, taps in product((1, 2), (3, 5)):  # depthwise convolutions, and their gradients by kernels
        images += [depthwise_forward(ColumnRun(step, taps)), depthwise_gradient(ColumnRun(step, taps))]
    backward = [ColumnRun(1, taps, True) for taps in (2, 3, 5)]
    images += map(depthwise_forward, (*backward, ColumnRun(1, 1)))  # their gradients by images
    rounding = contract_half("f16", "f16", beside=widens_beside_products(), right=F16_IN_F32)
    products = [contract_for(*types)[0] for types in (("f16",), ("f16", "f32"), ("bf16",))]
    spectra, lengths = FourierLanes("f32", lanes()), (2**twos for twos in range(4, 12))
    radices = sorted({radix for length in lengths for radix in radices_here(length) or ()})
    sound = [fourier("c64", spectra), *(passing(radix, spectra) for radix in radices)]
    return [*images, *products, rounding, *sound, *(scan("add", kind) for kind in ("f32", "s32"))]


def usual_transforms() -> list[MachineCode]:
    """Transforms of the tiles of convolutions of 3 x 3 taps and more, also with strides of 2.

    With strides of 2 a kernel has half of the taps in each phase, rounded up or down.
    """
    found: list[MachineCode] = []
    few = [axis for taps in (1, 2, 3) for axis in axes_of(taps)]
    pairs: list[Axes] = [(rows, columns) for rows, columns in product(few, repeat=2) if rows.taps * columns.taps > 1]
    squares: list[Axes] = [(axis, axis) for taps in (4, 5) for axis in axes_of(taps)]
    for axes in (SMALL, *pairs, *squares):
        found += [
            transforming(transform_of("taps", axes)),
            reading_runs(transform_of("inputs", axes), "f32"),
            writing_runs(transform_of("products", axes), "f32"),
        ]
        if axes[0].taps == axes[1].taps:
            found += [reading_runs(transform_of("gradients", axes), "f32"), transforming(transform_of("sums", axes))]
    return found
