"""print_tensor: the text on standard error, and when it is printed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipu import internal_ops, ipu_compiler, loops
from ipu.ipu_strategy import IPUStrategyV1
from tests.strategy.helpers import compiled, replicas


def test_values_are_printed_each_time(strategy: IPUStrategyV1, capfd: pytest.CaptureFixture[str]) -> None:
    @compiled
    def step(x: tf.Tensor) -> tf.Tensor:
        y = internal_ops.print_tensor(x, name="before")
        for _ in tf.range(3):
            x = x * 2
            internal_ops.print_tensor(x)
        return y

    result = strategy.run(step, args=(tf.constant([1.0, 2.0]),))
    np.testing.assert_array_equal(result, [1.0, 2.0])
    lines = [line for line in capfd.readouterr().err.splitlines() if "print_tensor" in line]
    assert sorted(line.rpartition(": ")[2] for line in lines) == ["[ 8. 16.]", "[1. 2.]", "[2. 4.]", "[4. 8.]"]
    assert [line for line in lines if "/before: [1. 2.]" in line]
    inside = [line for line in lines if "before" not in line]
    assert [line.rpartition(": ")[2] for line in inside] == ["[2. 4.]", "[4. 8.]", "[ 8. 16.]"]


def test_replicas_print_one_array(strategy: IPUStrategyV1, capfd: pytest.CaptureFixture[str]) -> None:
    replicas(2)
    strategy.run(compiled(lambda: internal_ops.print_tensor(tf.constant(5), "five")))
    assert "five: [5 5]" in capfd.readouterr().err


def test_printing_belongs_on_the_device() -> None:
    with pytest.raises(RuntimeError, match="print_tensor inside a tf.function that runs on the IPU"):
        internal_ops.print_tensor(tf.constant(1.0))


def test_compile_in_a_function(strategy: IPUStrategyV1, capfd: pytest.CaptureFixture[str]) -> None:
    def net(v: tf.Tensor, pair: list[tf.Tensor]) -> object:
        print_op = internal_ops.print_tensor(v).op
        return v + pair[0] * pair[1], print_op

    @compiled
    def step(v: tf.Tensor) -> object:
        (single,) = ipu_compiler.compile(lambda x: x + 1, [v])
        (result,) = ipu_compiler.compile(net, inputs=[v, [single, 3.0]])
        nothing = ipu_compiler.compile(lambda: loops.repeat(2, lambda: None))
        assert isinstance(nothing, tf.Operation)
        return result

    assert strategy.run(step, args=(tf.constant(1.0),)) == 7.0
    assert "print_tensor: 1.0" in capfd.readouterr().err
    with pytest.raises(TypeError, match="inputs to be a list"):
        strategy.run(compiled(lambda: ipu_compiler.compile(lambda x: x, tf.constant(1.0))))
