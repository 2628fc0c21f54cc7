"""The codelets that can be compiled before a machine's first model, as all or many models need them.

The project's installation compiles them into the cache or into a wheel (hatch_build.py).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from engine.codelets.convolutions.cook_toom import WIDE_OUTPUTS
from engine.codelets.convolutions.overlap_add import overlap_add
from engine.codelets.convolutions.winograd import kernel_transform, product_of_tiles
from engine.codelets.convolutions.winograd_gradient import gradient_of_tiles, sums_of_taps
from engine.codelets.language.build import Codelet, objects_of
from engine.codelets.language.vector import F16_IN_F32
from engine.codelets.pooling.overlapping_pool_gradient import overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.codelets.pooling.pool_windows import pool_windows
from engine.codelets.products.contract_half import contract_half
from engine.codelets.products.contract_plain import contract_for
from engine.codelets.products.pack_panels import pack_panels
from engine.machine_code import installed_objects
from engine.machine_code.processor import may_use_matrix_registers, widens_beside_products

MODULES = (
    *("engine.runtime.executor", "engine.codelets.products.contract_f32", "engine.codelets.threads.thread_pool"),
    *("engine.codelets.chain", "engine.codelets.host.rows", "engine.codelets.threads.waiting"),
    *("engine.codelets.transpose", "engine.codelets.rows.row_sums", "engine.codelets.all_finite"),
    *(
        "engine.codelets.rows.gather",
        "engine.codelets.rows.gather_rows",
        "engine.codelets.rows.first_of_equal",
        "engine.codelets.rows.scatter",
        "engine.codelets.rows.scatter_rows",
    ),
    *(
        "engine.codelets.convolutions.winograd",
        "engine.codelets.convolutions.winograd_gradient",
        "engine.codelets.rows.dynamic_slice",
    ),
    *(
        "engine.codelets.random",
        "engine.codelets.rows.touched_rows",
        "engine.codelets.rows.reduced_rows",
        "engine.codelets.per_iteration",
    ),
    *(
        "engine.codelets.value_check",
        "engine.codelets.host.queues",
        "engine.codelets.host.host_call",
        "engine.codelets.language.exceptions",
    ),
    *("engine.codelets.sort", "engine.codelets.host.host_table"),
    "engine.codelets.rows.edge_products",
)
"""Modules whose named codelets depend on no model."""
MATRIX_REGISTERS = "engine.codelets.products.contract_bf16x3"


def general_codelets() -> list[Codelet]:
    """The named codelets of MODULES, those of usual kinds, and those for matrix registers where there are any."""
    modules = (*MODULES, MATRIX_REGISTERS) if may_use_matrix_registers() else MODULES
    found = (each for name in modules for each in vars(import_module(name)).values())
    return list(dict.fromkeys([*(each for each in found if isinstance(each, Codelet)), *usual_codelets()]))


def usual_codelets() -> list[Codelet]:
    """Codelets of kinds that most models of images, and most with 16-bit floats, need."""
    images = [
        pool_gradient("UGE", "f32"),  # max pooling whose windows do not overlap, such as 2 x 2
        pool_windows("maximum-number", "f32", 3, 2),  # 3 x 3 with strides of 2
        overlapping_pool_gradient("UGE", "f32", 3, 2),
        overlap_add("f32"),  # convolutions of stride 1 with few output features
        kernel_transform("f32", WIDE_OUTPUTS),  # convolutions of 3 x 3 taps, and their gradients by kernels
        product_of_tiles("f32", "f32", WIDE_OUTPUTS),
        gradient_of_tiles("f32", WIDE_OUTPUTS),
        sums_of_taps("f32", WIDE_OUTPUTS),
        pack_panels,
    ]
    rounding = contract_half("f16", "f16", beside=widens_beside_products(), right=F16_IN_F32)
    products = [contract_for(*types)[0] for types in (("f16",), ("f16", "f32"), ("bf16",))]
    return [*images, *products, rounding]


def compile_part(number: int, count: int) -> None:
    """Compiles part `number` of `count` parts of the general codelets into the cache."""
    objects_of(general_codelets()[number::count])


def write_archive(folder: str) -> None:
    """Writes the objects of all general codelets for the processor that the environment names, as wheels have them."""
    installed_objects.write(Path(folder), objects_of(general_codelets()))
