"""The compiled program of an export: a step with the present values of its variables."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from engine.errors import ConfigurationError
from engine.files.executable_file import ExecutableFile, check_exportable, write_executable
from engine.files.signature import Signature, TensorInfo
from engine.ir import Module
from engine.runtime.execution_locks import Execution
from engine.runtime.feeds import RowFeed
from engine.serving.manifest import Manifest
from ipu._internal.compiler.program import build_executable
from ipu._internal.compiler.replication import alone
from ipu._internal.compiler.trace import trace_step
from ipu._internal.compiler.value_checks import checking


@dataclass(frozen=True)
class FrozenStep:
    """A step as the engine takes it, with the values of its variables among the constants."""

    module: Module
    roles: list[str]
    constants: dict[int, np.ndarray]

    def compile(self) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
        """A thread-safe function that runs it on one array for each input; raises UnsupportedOperation."""
        executable = build_executable(self.module, self.roles, self.constants)
        lock = threading.Lock()

        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            feeds = [RowFeed(np.ascontiguousarray(array if array.ndim else array[None])) for array in arrays]
            with lock:
                return executable.run(1, feeds, [])

        return run


def freeze_step(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> FrozenStep:
    """Traces a function of tensors for the engine.

    Raises UnsupportedOperation for unsupported operations, ConfigurationError for a function that updates variables.
    """
    with checking.replaced_by(False):
        traced = alone(trace_step(function, specs), 1)
    check_exportable(traced.module)
    if traced.updated:
        names = ", ".join(str(getattr(variable, "name", variable)) for variable in traced.updated)
        raise ConfigurationError(
            f"Expected a function that updates no variables, which are constants in what is exported. Received: one "
            f"that updates {names}. Make layers stateless."
        )
    numbers = [number for number, role in enumerate(traced.roles) if role == "variable"]
    variables = list(zip(numbers, traced.variables, strict=True))
    values = Execution(traced.variables).alone(lambda: {n: each.device_buffer().read() for n, each in variables})
    roles = ["constant" if role == "variable" else role for role in traced.roles]
    return FrozenStep(traced.module, roles, {**traced.constants, **values})


def write_program(path: Path, program: FrozenStep, manifest: Manifest) -> None:
    """Writes the program, with the names of its inputs and outputs, to an executable file."""
    infos = (
        tuple(TensorInfo(each.name, each.shape, each.numpy_dtype) for each in tensors)
        for tensors in (manifest.program_inputs, manifest.program_outputs)
    )
    metadata = {"iterations": str(manifest.iterations)}
    if manifest.pipeline is not None:
        metadata["pipeline"] = json.dumps(asdict(manifest.pipeline))
    file = ExecutableFile(program.module, program.roles, program.constants, Signature(*infos), metadata=metadata)
    write_executable(path, file)
