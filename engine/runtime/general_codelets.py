"""The codelets that can be compiled before a machine's first model, as all or many models need them.

The project's installation compiles them into the cache or into a wheel (hatch_build.py).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from engine.codelets.language.build import Codelet, objects_of
from engine.machine_code import installed_objects
from engine.machine_code.processor import may_use_matrix_registers

MODULES = (
    *("engine.runtime.executor", "engine.codelets.products.contract_f32", "engine.codelets.threads.thread_pool"),
    *("engine.codelets.chain", "engine.codelets.host.rows", "engine.codelets.threads.waiting"),
    *("engine.codelets.transpose", "engine.codelets.rows.row_sums", "engine.codelets.convolutions.usual_images"),
    *(
        "engine.codelets.rows.gather",
        "engine.codelets.rows.gather_rows",
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
    *("engine.codelets.rows.edge_sums", "engine.codelets.rows.edge_products"),
)
"""Modules whose named codelets depend on no model, or are part of most models of images."""
MATRIX_REGISTERS = "engine.codelets.products.contract_bf16x3"


def general_codelets() -> list[Codelet]:
    """The named codelets of MODULES, and those for matrix registers where there are any."""
    modules = (*MODULES, MATRIX_REGISTERS) if may_use_matrix_registers() else MODULES
    found = (each for name in modules for each in vars(import_module(name)).values())
    return list(dict.fromkeys(each for each in found if isinstance(each, Codelet)))


def compile_part(number: int, count: int) -> None:
    """Compiles part `number` of `count` parts of the general codelets into the cache."""
    objects_of(general_codelets()[number::count])


def write_archive(folder: str) -> None:
    """Writes the objects of all general codelets for the processor that the environment names, as wheels have them."""
    installed_objects.write(Path(folder), objects_of(general_codelets()))
