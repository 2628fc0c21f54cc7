"""LLVM's target machines, and its passes over a module."""

from __future__ import annotations

import platform
import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from llvmlite import binding

from engine.machine_code.processor import MACHINE, features_text, target


@dataclass(frozen=True, slots=True)
class Pipeline:
    """LLVM's passes at an optimisation level, with or without loop vectorisation and unrolling.

    Instruction selection uses `level`, too. With `only_combines` only the pass that combines instructions runs. Without
    `reduces_strength` addresses are computed where they are used. Without `reorders` instructions stay in their order.
    """

    level: int
    loops: bool
    only_combines: bool = False
    reduces_strength: bool = True
    reorders: bool = True


_emitting = threading.Lock()  # LLVM's options are those of the process

WRITTEN_IN_VECTORS = Pipeline(level=2, loops=False, reduces_strength=False)
"""Pipeline for IR whose loops are vectorised by hand: the vectorisers would only cost compile time.

Strength reduction makes a variable of each of the many addresses of a tile, more than there are registers.
"""
WRITTEN_OUT = Pipeline(level=2, loops=False, only_combines=True)
"""Pipeline for IR that has nothing to inline, to hoist or to share: the other passes would only cost compile time."""
IN_ORDER = replace(WRITTEN_OUT, reorders=False)
"""Pipeline for IR like this that interleaves vectors: LLVM would put them one behind the other to spare registers."""


@cache
def _target_machine(level: int) -> Any:
    """The target machine of an optimisation level."""
    name, features = target()[0], features_text()
    return _target().create_target_machine(cpu=name, features=features, opt=level, codemodel="jitdefault", jit=True)


@cache
def _target() -> Any:
    """LLVM's target: this machine's, or Linux on another family of processors, whose code is not run here."""
    if platform.machine() == MACHINE:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        return binding.Target.from_default_triple()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding.Target.from_triple(f"{MACHINE}-unknown-linux-gnu")


def optimise(module: Any, pipeline: Pipeline) -> None:
    """Verifies a module of LLVM IR, and runs the passes over it."""
    machine = _target_machine(pipeline.level)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=pipeline.level)
    options.loop_vectorization = options.loop_unrolling = pipeline.loops
    options.slp_vectorization = False
    passes = binding.create_pass_builder(machine, options)
    if pipeline.only_combines:
        manager = binding.create_new_module_pass_manager()
        manager.add_instruction_combine_pass()
    else:
        manager = passes.getModulePassManager()
    manager.run(module, passes)


def object_of(module: Any, pipeline: Pipeline) -> bytes:
    """The object code of a module that `optimise` has processed."""
    with _emitting:
        try:
            _set_options(pipeline)
            return bytes(_target_machine(pipeline.level).emit_object(module))
        finally:
            _set_options(WRITTEN_OUT)  # a program may have functions of its own for Numba


def _set_options(pipeline: Pipeline) -> None:
    """Sets the options of LLVM that a pipeline changes; those of WRITTEN_OUT are LLVM's defaults."""
    for option, is_on in (("disable-lsr", not pipeline.reduces_strength), ("enable-misched", pipeline.reorders)):
        binding.set_option("", f"-{option}={str(is_on).lower()}")


def compile_text(text: str, pipeline: Pipeline = WRITTEN_IN_VECTORS) -> bytes:
    """The object code of a module of LLVM IR text."""
    module = binding.parse_assembly(text)
    optimise(module, pipeline)
    return object_of(module, pipeline)
