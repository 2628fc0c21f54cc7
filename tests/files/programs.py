"""Small programs as executable files."""

from __future__ import annotations

import numpy as np

from engine.files.executable_file import ExecutableFile, to_bytes
from engine.files.signature import Signature, tensor_info
from engine.ir import Module
from engine.ir.builder import Builder


def classifier(batch: int = 4, updates: bool = False) -> ExecutableFile:
    """relu(x @ w + b), and the sum of each row; with `updates` a third variable counts the runs."""
    builder = Builder()
    x, w, b = (builder.parameter("f32", d) for d in ((batch, 5), (5, 3), (3,)))
    rows = builder.broadcast(b, (batch, 3), (1,))
    y = builder.elementwise("maximum", builder.add(builder.dot(x, w), rows), builder.splat(0.0, (batch, 3)))
    zero = builder.constant(0.0)
    results = [y, builder.reduce(y, zero, (1,))]
    aliases = {}
    if updates:
        counter = builder.parameter("s32", ())
        results.append(builder.add(counter, builder.constant(1, "s32")))
        results.append(builder.multiply(counter, builder.constant(2, "s32")))
        aliases = {3: 2}
    module = builder.module(builder.tuple(*results), aliases)
    rng = np.random.default_rng(3)
    values = {1: rng.normal(size=(5, 3)).astype(np.float32), 2: rng.normal(size=3).astype(np.float32)}
    roles = ["feed", "constant", "constant", *(["variable"] if updates else [])]
    variables = {3: np.array(7, np.int32)} if updates else {}
    return ExecutableFile(module, roles, values, signature(module, ["x"], ["scores", "sums", "runs"]), variables)


def signature(module: Module, inputs: list[str], outputs: list[str]) -> Signature:
    """A signature whose inputs are the first parameters, and whose outputs are all results that no variable takes."""
    taken = set(module.aliases.values())
    results = [result for k, result in enumerate(module.results) if k not in taken]
    return Signature(
        tuple(tensor_info(n, p.array_shape) for n, p in zip(inputs, module.entry.parameters, strict=False)),
        tuple(tensor_info(n, r.array_shape) for n, r in zip(outputs, results, strict=False)),
    )


def expected(file: ExecutableFile, x: np.ndarray) -> dict[str, np.ndarray]:
    """Results of the classifier, by NumPy."""
    scores = np.maximum(x @ file.constants[1] + file.constants[2], 0)
    return {"scores": scores, "sums": scores.sum(1)}


def plain_file(module: Module) -> bytes:
    """A file of a module whose parameters are all inputs."""
    parameters = module.entry.parameters
    names = [f"i{k}" for k in range(len(parameters))], [f"o{k}" for k in range(len(module.results))]
    return to_bytes(ExecutableFile(module, ["feed"] * len(parameters), {}, signature(module, *names)))
