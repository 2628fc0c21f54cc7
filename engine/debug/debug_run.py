"""Entry point for a module: compiles it, runs one step on tiles with separate memories, and returns a record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.compile import build_program
from engine.debug.executable import TILES, DebugExecutable
from engine.debug.record import DebugRecord
from engine.errors import InternalError
from engine.ir import Module
from engine.runtime.buffers import DeviceBuffer


@dataclass(frozen=True)
class DebugRun:
    """The module's flat results, as `engine.evaluate.evaluate` gives them, and the record of the supersteps."""

    results: tuple[np.ndarray, ...]
    record: DebugRecord


def debug_run(module: Module, arguments: list[np.ndarray], *, tiles: int = TILES) -> DebugRun:
    """Runs one step of `module` on the debug executor, for one array per entry parameter; these are left unchanged.

    Raises DebugError for undeclared accesses of a compute set, UnsupportedOperation for operations that the engine
    cannot run, InternalError for other arguments than the module's, ConfigurationError for less than one tile.
    """
    shapes = [parameter.array_shape for parameter in module.entry.parameters]
    given = [np.asarray(argument) for argument in arguments]
    if [(a.dtype, a.shape) for a in given] != [(s.dtype, s.dimensions) for s in shapes]:
        received = ", ".join(f"{a.dtype}{list(a.shape)}" for a in given)
        raise InternalError(f"Expected arguments {', '.join(map(str, shapes))}. Received: {received}.")
    variables = [DeviceBuffer(shape) for shape in shapes]
    for variable, value in zip(variables, given, strict=True):
        variable.write(value)
    executable = DebugExecutable(build_program(module, ["variable"] * len(shapes), {}), tiles=tiles)
    outputs = iter(executable.run(1, [], variables))
    updated = {result: parameter for parameter, result in module.aliases.items()}
    results = (variables[updated[k]].read() if k in updated else next(outputs) for k in range(len(module.results)))
    return DebugRun(tuple(results), executable.record)
