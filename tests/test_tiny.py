"""The smallest test of the whole engine, without TensorFlow: two steps of gradient descent on one layer."""

from __future__ import annotations

import numpy as np

from engine.compile import compile_module
from engine.evaluate import evaluate
from engine.ir import DotDimensionNumbers, Module, Shape
from engine.ir.builder import Builder
from engine.runtime.buffers import DeviceBuffer
from engine.runtime.feeds import RowFeed

STEPS, BATCH = 2, 4


def descent() -> Module:
    """Parameters x[4, 3] and w[3, 2]; results: the sum of relu(x w), and w less a tenth of its gradient."""
    b = Builder("descent")
    x, w = b.parameter("f32", (BATCH, 3)), b.parameter("f32", (3, 2))
    product = b.dot(x, w)
    zero = b.constant(0.0)
    zeros = b.broadcast(zero, (BATCH, 2), ())
    hidden = b.elementwise("maximum", product, zeros)
    loss = b.reduce(hidden, zero, (0, 1))
    slope = b.convert(b.compare(product, zeros, "GT"), "f32")
    gradient = b.dot(x, slope, DotDimensionNumbers((0,), (0,)))
    updated = b.subtract(w, b.multiply(gradient, b.splat(0.1, (3, 2))))
    return b.module(b.tuple(loss, updated), aliases={1: 1})


def test_two_steps_agree_with_the_definitions() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(STEPS * BATCH, 3)).astype(np.float32)
    w = generator.normal(size=(3, 2)).astype(np.float32)
    variable = DeviceBuffer(Shape("f32", (3, 2)))
    variable.write(w)
    executable = compile_module(descent(), ["feed", "variable"], {}, verify=True)
    (losses,) = executable.run(STEPS, [RowFeed(x)], [variable], outputs="all")

    expected = []
    for step in range(STEPS):
        loss, w = evaluate(descent(), [x[step * BATCH : (step + 1) * BATCH], w])
        expected.append(loss)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    np.testing.assert_allclose(variable.read(), w, rtol=1e-6)
