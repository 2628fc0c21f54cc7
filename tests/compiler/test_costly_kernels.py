"""Custom calls replace operations that TensorFlow takes long to expand, and become the HLO that it would write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops

from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.ir import Module
from engine.ir.printer import print_module
from ipu._internal.compiler import costly_kernels, emission
from ipu._internal.compiler.emission import module_of

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "Abs": tf.abs,
    "BiasAddGrad": gen_nn_ops.bias_add_grad,
    "Exp": tf.exp,
    "IsFinite": tf.math.is_finite,
    "Relu": tf.nn.relu,
    "ReluGrad": lambda x: gen_nn_ops.relu_grad(x + x, x),
    "Rsqrt": tf.math.rsqrt,
    "Sigmoid": tf.sigmoid,
    "Sign": tf.sign,
    "Sqrt": tf.sqrt,
    "Tanh": tf.tanh,
}


def imported(function: Callable[..., Any], *specs: tf.TensorSpec) -> Module:
    concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*specs)
    return module_of(concrete, list(specs))


def text(module: Module) -> str:
    """The text of the module, with its values numbered in their order in place of names."""
    numbers: dict[str, str] = {}
    printed = re.sub(r"^(.*%\S+ )\(.*\) ->", r"\1->", print_module(module).split("\n", 1)[1], flags=re.MULTILINE)
    return re.sub(r"%[\w.\-]+", lambda found: numbers.setdefault(found[0], f"%{len(numbers)}"), printed)


def without_custom_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emission, "rewritten_for_xla", lambda *_, **named: contextlib.nullcontext())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_hlo_is_tensorflows(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.name_scope("scope"):
            return [operation(each) for operation in OPERATIONS.values() for each in (x, y, x + 1)]

    specs = tf.TensorSpec((3, 5), dtype), tf.TensorSpec((2, 1, 3, 4), dtype)
    ours = imported(function, *specs)
    assert "custom-call" not in print_module(ours)
    without_custom_calls(monkeypatch)
    assert text(ours) == text(imported(function, *specs))


def test_the_hlo_of_scalars_is_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [operation(x) for name, operation in OPERATIONS.items() if name != "BiasAddGrad"]

    ours = imported(function, tf.TensorSpec(()))
    assert "custom" not in print_module(ours)
    without_custom_calls(monkeypatch)
    assert text(ours) == text(imported(function, tf.TensorSpec(())))


def test_they_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    original = emission._serialized
    monkeypatch.setattr(emission, "_serialized", lambda name, *given: seen.append(name) or original(name, *given))
    for operation in OPERATIONS.values():
        imported(operation, tf.TensorSpec((3, 5)))
    assert OPERATIONS.keys() == costly_kernels.RESULTS.keys() - {"Erfc", *costly_kernels.RESIZING}
    assert len(seen) == len(OPERATIONS) and all("custom_calls" in each for each in seen)


def test_the_function_itself_stays() -> None:
    concrete = tf.function(tf.exp, jit_compile=True).get_concrete_function(tf.TensorSpec((3,)))
    before = concrete.function_def.SerializeToString(deterministic=True)
    module_of(concrete, [tf.TensorSpec((3,))])
    assert concrete.function_def.SerializeToString(deterministic=True) == before
    np.testing.assert_array_equal(concrete(tf.zeros(3)), np.ones(3, np.float32))


def test_others_are_left_to_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: tf.Tensor, y: tf.Tensor, empty: tf.Tensor) -> tuple[tf.Tensor, ...]:
        size = tf.cast(tf.raw_ops.Shape(input=x)[-1], tf.float32)
        return tf.abs(x), tf.abs(y), tf.exp(empty), tf.sqrt(tf.constant(2.0) * 3), tf.tanh(size)

    specs = tf.TensorSpec((3,), tf.int32), tf.TensorSpec((3,), tf.complex64), tf.TensorSpec((0, 3))
    ours = text(imported(function, *specs))
    without_custom_calls(monkeypatch)
    assert ours == text(imported(function, *specs))


def test_sizes_known_at_run_time_only_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        positive = tf.boolean_mask(x, x > 0)
        positive.set_shape((2,))
        return tf.reduce_sum(tf.exp(positive))

    ours = text(imported(function, tf.TensorSpec((5,))))
    without_custom_calls(monkeypatch)
    assert ours == text(imported(function, tf.TensorSpec((5,))))


def test_an_error_names_the_operation_as_it_was_traced() -> None:
    with pytest.raises(UnsupportedOperation, match="AsString at 'AsString'"):
        imported(
            lambda x: tf.exp(x) + tf.cast(tf.strings.length(tf.strings.as_string(x)), tf.float32), tf.TensorSpec((3,))
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_erfc_is_one_operation_also_in_a_loop_and_a_branch(dtype: str) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        y = tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, tf.math.erfc(y)), (0, x))[1]
        return tf.cond(y[0] > 0.5, lambda: tf.math.erfc(y), lambda: y) + tf.math.erfc(x)

    module = imported(function, tf.TensorSpec((3,), dtype))
    opcodes = [each.opcode for each in module.instructions()]
    assert opcodes.count("erfc") == 3 and "exponential" not in opcodes
    x = np.array([-0.5, 0.25, 2.0], tf.as_dtype(dtype).as_numpy_dtype)
    (found,) = evaluate(module, [x])
    expected, tolerance = function(tf.constant(x)).numpy(), 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(found.astype("f"), expected.astype("f"), rtol=tolerance)


def test_erfc_of_a_function_is_one_operation_after_a_gradient() -> None:
    inner = tf.function(tf.math.erfc, autograph=False)
    outer = tf.function(lambda x: inner(x) + 1.0, jit_compile=True, autograph=False)
    concrete = outer.get_concrete_function(tf.TensorSpec((3,)))
    with tf.GradientTape() as tape:
        x = tf.constant([1.0, 2.0, 3.0])
        tape.watch(x)
        tape.gradient(concrete(x), x)
    opcodes = [each.opcode for each in module_of(concrete, [tf.TensorSpec((3,))]).instructions()]
    assert "erfc" in opcodes and "exponential" not in opcodes


def test_erfc_of_doubles_is_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = text(imported(tf.math.erfc, tf.TensorSpec((3,), tf.float64)))
    without_custom_calls(monkeypatch)
    assert ours == text(imported(tf.math.erfc, tf.TensorSpec((3,), tf.float64)))
