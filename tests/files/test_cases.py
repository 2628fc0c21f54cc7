"""Programs of every family of operations go through files unchanged, and are not taken for hostile."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import compiler_ir

from engine.compile import prepare
from engine.files.arrays import ArrayReader, ArrayWriter
from engine.files.executable_file import from_bytes, to_bytes
from engine.files.modules import read_module, write_module
from engine.ir import Module
from engine.ir.printer import print_module
from ipu._internal.compiler.executable_files import unnamed_file
from ipu._internal.compiler.hlo import import_hlo
from tests.compiler.hlo_cases import CASES, Case


def traced(case: Case) -> Module:
    specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in case.arguments]
    concrete = tf.function(case.function, jit_compile=True, autograph=False).get_concrete_function(*specs)
    return import_hlo(compiler_ir.from_concrete_function(concrete, specs)(stage="hlo_serialized"))


def literals(module: Module) -> list[np.ndarray]:
    instructions = [i for computation in module.computations() for i in computation.instructions]
    return [i["literal"] for i in instructions if i.opcode == "constant"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_holds_the_whole_program(case: Case) -> None:
    module = traced(case)
    file = unnamed_file(module, ["feed"] * len(module.entry.parameters), {})
    read = from_bytes(to_bytes(file), case.name).module
    assert print_module(read) == print_module(module) and read.aliases == module.aliases
    for mine, its in zip(literals(module), literals(read), strict=True):
        assert mine.dtype == its.dtype and mine.tobytes() == its.tobytes()
    # The module that the passes make, too: it has attributes that only they write.
    ready, arrays = prepare(module), ArrayWriter()
    kept = read_module(write_module(ready, arrays), ArrayReader(memoryview(arrays.content())))
    assert print_module(kept) == print_module(ready)
