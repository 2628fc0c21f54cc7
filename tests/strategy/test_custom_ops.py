"""Expressions, functions of the host and precompiled operations of `ipu.custom_ops`, against their definitions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError, HostFunctionError, UnsupportedOperation
from tests.strategy.helpers import compiled

ops = ipu.custom_ops
X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
ROW = np.array([1, -2, 0.5, 4], np.float16)
LIKE_X = {"output_types": [tf.float32], "output_shapes": [X.shape]}


def test_names_are_those_of_the_documents() -> None:
    assert ipu.ops.custom_ops is ops


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda x, y: x * x + y * 2 - 1, X * X + ROW * 2 - 1),
        (lambda x, y: 1 - abs(-x) + +y, 1 - abs(X) + ROW),
        (lambda x, y: tf.exp(x) / (2 + y * y), np.exp(X) / (2 + ROW * ROW)),
        (lambda x, y: 3, np.float32(3)),
    ],
)
def test_expression_is_that_of_numpy(expression: Callable[..., Any], expected: np.ndarray, strategy: Any) -> None:
    with strategy.scope():
        found = strategy.run(compiled(lambda x, y: ops.codelet_expression_op(expression, x, y)), (X, ROW))
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_expression_of_integers_inverts_and_keeps_their_dtype() -> None:
    found = ops.codelet_expression_op(lambda x, y: ~x + y, tf.constant([1, 2]), tf.constant([3.7, 4]))
    assert found.dtype == tf.int32 and found.numpy().tolist() == [1, 1]


def test_expression_must_be_elementwise() -> None:
    with pytest.raises(ConfigurationError, match="an element-wise expression, with a result"):
        ops.codelet_expression_op(lambda x: tf.reduce_sum(x, 0), X)
    with pytest.raises(ConfigurationError, match="inputs of an expression"):
        ops.codelet_expression_op(lambda: 1)


SOURCE = r"""
#include <cstdint>
#include <string>
#include <vector>
using Inputs = const std::vector<const void *>;
using Sizes = const std::vector<uint32_t>;
using Outputs = const std::vector<void *>;
static const float *at(Inputs &v, int k) { return static_cast<const float *>(v.at(k)); }

extern "C" void Scale(Inputs &data, Sizes &sizes, Outputs &outputs, const std::string &attributes,
                      const std::string &name) {
  for (uint32_t k = 0; k < sizes.at(0); k++)
    static_cast<float *>(outputs.at(0))[k] = at(data, 0)[k] * at(data, 1)[0] * std::stof(attributes) + name.size();
}
extern "C" void Scale_grad(Inputs &data, Sizes &sizes, Outputs &outputs, const std::string &attributes,
                           const std::string &name) {
  bool alone = outputs.size() == 1;
  float factor = std::stof(attributes), sum = 0;
  for (uint32_t k = 0; k < sizes.at(0); k++) {
    if (!alone || name.back() == '0') static_cast<float *>(outputs.at(0))[k] = at(data, 0)[k] * at(data, 3)[0] * factor;
    sum += at(data, 0)[k] * at(data, 2)[k] * factor;
  }
  if (!alone || name.back() == '1') static_cast<float *>(outputs.back())[0] = sum;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library in C++, of the documented signature."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    source = tmp_path_factory.mktemp("library") / "scale.cpp"
    source.write_text(SOURCE)
    made = source.with_suffix(".so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def scale(*arrays: np.ndarray, attributes: str) -> Any:
    return arrays[0] * arrays[1] * float(attributes) + len("scaled")


def scale_grad(*arrays: np.ndarray, attributes: str) -> Any:
    d_out, _, x, factor = arrays
    gradients = [d_out * factor * float(attributes), (d_out * x).sum() * float(attributes)]
    return gradients


PYTHON = SimpleNamespace(Scale=scale, Scale_grad=scale_grad)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("in_python", [False, True])
@pytest.mark.parametrize("options", [{}, {"separate_gradients": True}, {"inputs_with_gradients": [0, 1]}])
def test_user_operation_and_its_gradient(
    in_python: bool, options: dict[str, Any], eager: bool, request: pytest.FixtureRequest, strategy: Any
) -> None:
    if in_python and options.get("separate_gradients"):
        pytest.skip("the function above gives all gradients at once")
    source = PYTHON if in_python else request.getfixturevalue("library")

    def step(x: tf.Tensor, factor: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, factor])
            given = {"outs": LIKE_X, "name": "scaled", "op_name": "Scale", **options}
            (y,) = ops.cpu_user_operation([x, factor], source, attributes="3", gradient_attributes="3", **given)
            loss = tf.reduce_sum(y * y)
        return y, *tape.gradient(loss, [x, factor])

    x, factor = tf.constant(X), tf.constant(0.5)
    with strategy.scope():
        y, d_x, d_factor = step(x, factor) if eager else strategy.run(compiled(step), (x, factor))
    expected = X * 1.5 + 6
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(d_x, 2 * expected * 1.5, rtol=1e-6)
    np.testing.assert_allclose(d_factor, (2 * expected * X * 3).sum(), rtol=1e-6)


def test_user_operation_without_outputs_is_called_in_each_step(strategy: Any) -> None:
    seen: list[float] = []
    with strategy.scope():
        step = compiled(lambda x: ops.cpu_user_operation([x], lambda v: seen.append(float(v.sum())), None) and None)
        for value in (1.0, 2.0):
            strategy.run(step, (tf.fill([3], value),))
    assert seen == [3.0, 6.0]


def test_wrong_result_of_a_user_operation_ends_the_step(strategy: Any) -> None:
    with strategy.scope(), pytest.raises(HostFunctionError, match="UserOp"):
        strategy.run(compiled(lambda x: ops.cpu_user_operation([x], lambda v: v[:1], LIKE_X)), (X,))


def test_what_does_not_exist_is_refused(tmp_path: Path, library: str) -> None:
    missing = str(tmp_path / "missing.so")
    for function in (ops.cpu_user_operation, ops.precompiled_user_op):
        with pytest.raises(tf.errors.NotFoundError, match=r"missing\.so"):
            function([X], missing, outs=LIKE_X)
        with pytest.raises(ValueError, match="attributes to be a string"):
            function([X], library, outs=LIKE_X, attributes=3)
        with pytest.raises(ValueError, match="output_types"):
            function([X], library, outs={"output_types": [tf.float32]})
    with pytest.raises(ConfigurationError, match="a function 'Callback' in"):
        ops.cpu_user_operation([X], library, outs=LIKE_X)
    with pytest.raises(ConfigurationError, match="inputs_with_gradients below 1"):
        ops.cpu_user_operation([X], PYTHON, LIKE_X, op_name="Scale", inputs_with_gradients=[1])
    with pytest.raises(UnsupportedOperation, match=r"Poplar graph.*ipu\.custom_ops\.vertex"):
        ops.precompiled_user_op([X], library, outs=LIKE_X)
