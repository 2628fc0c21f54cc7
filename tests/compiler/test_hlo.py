"""Imported HLO, evaluated with the op definitions, has TensorFlow's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.eager.polymorphic_function import compiler_ir

from engine.errors import UnsupportedOperation
from engine.evaluate import evaluate
from engine.ir import Module, Shape
from engine.ir.printer import print_module
from engine.ir.verifier import verify
from ipu._internal.compiler.hlo import import_hlo
from ipu._internal.compiler.hlo_attributes import literal_to_numpy
from tests.compiler.hlo_cases import CASES, Case


def serialized(function: Callable[..., Any], *arguments: np.ndarray) -> bytes:
    specs = [tf.TensorSpec(a.shape, tf.as_dtype(a.dtype)) for a in arguments]
    concrete = tf.function(function, jit_compile=True).get_concrete_function(*specs)
    return compiler_ir.from_concrete_function(concrete, specs)(stage="hlo_serialized")


def imported(function: Callable[..., Any], *arguments: np.ndarray) -> Module:
    module = import_hlo(serialized(function, *arguments))
    verify(module)
    return module


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_evaluates_to_what_tensorflow_computes(case: Case) -> None:
    module = imported(case.function, *case.arguments)
    results = evaluate(module, list(case.arguments))
    reference = tf.function(case.function, jit_compile=True) if case.compiled else case.function
    expected = [e.numpy() for e in tf.nest.flatten(reference(*map(tf.constant, case.arguments)))]
    assert len(results) == len(expected) > 0
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == value.dtype
        wide = np.float64 if value.dtype.kind not in "iub" else value.dtype
        np.testing.assert_allclose(result.astype(wide), value.astype(wide), rtol=case.tolerance, atol=case.tolerance)


def test_cases_cover_the_families_of_operations() -> None:
    assert len(CASES) >= 50
    assert len({case.name for case in CASES}) == len(CASES)


def test_aliases_name_the_result_that_replaces_a_parameter() -> None:
    weights, untouched = tf.Variable([1.0, 2.0]), tf.Variable(3.0)

    def step(x: tf.Tensor) -> tf.Tensor:
        weights.assign_add(x * untouched)
        return tf.reduce_sum(x)

    x = np.array([0.5, 0.25], np.float32)
    module = imported(step, x)
    (updated,) = module.aliases
    assert module.aliases == {updated: 1}
    assert module.entry.parameters[updated].shape == Shape("f32", (2,))
    values = {(): np.float32(3.0), (2,): np.array([1.0, 2.0], np.float32)}
    captured = [values[p.array_shape.dimensions] for p in module.entry.parameters[1:]]
    total, replaced = evaluate(module, [x, *captured])
    assert total == np.float32(0.75)
    np.testing.assert_array_equal(replaced, np.array([2.5, 2.75], np.float32))


def test_single_result_is_no_tuple_and_may_be_an_alias() -> None:
    counter = tf.Variable(4)

    def step() -> None:
        counter.assign_add(3)

    module = imported(step)
    assert module.aliases == {0: 0}
    assert module.entry.root.opcode != "tuple"
    assert [int(r) for r in evaluate(module, [np.array(4, np.int32)])] == [7]


def test_origin_of_each_instruction_is_kept() -> None:
    def named(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("encoder"):
            return tf.matmul(x, x, name="scores")

    names = {i.opcode: i.op_name for i in imported(named, np.eye(3, dtype=np.float32)).entry.instructions}
    assert names["dot"] == "encoder/scores"


def test_dynamic_dimension_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperation, match=r"(?s)known only at run time.*mask"):
        imported(lambda x: tf.boolean_mask(x, x > 0), np.ones(5, np.float32))


def test_element_type_without_arithmetic_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperation, match="f8e4m3fn"):
        imported(lambda x: tf.cast(x, tf.dtypes.experimental.float8_e4m3fn), np.ones(5, np.float32))


@pytest.mark.parametrize(
    "value",
    [
        np.array([True, False]),
        np.array([[1, -2], [3, 127]], np.int8),
        np.array([[1, 2, 250]], np.uint8),
        np.array([-300, 7], np.int16),
        np.array([65535], np.uint16),
        np.array([-(2**31), 5], np.int32),
        np.array([2**32 - 1], np.uint32),
        np.array([-(2**63)], np.int64),
        np.array([2**64 - 1], np.uint64),
        np.array([[1.5, np.nan, -np.inf]], np.float16),
        np.array([[1.5, -0.0], [3e38, 2]], ml_dtypes.bfloat16),
        np.array(3.25, np.float32),
        np.array([np.pi, -0.0]),
        np.array([1 + 2j, -3j], np.complex64),
        np.array([[1 + 2j], [3.5]]),
        np.zeros((0, 3), np.float32),
    ],
    ids=lambda value: str(value.dtype),
)
def test_constants_of_every_type_are_read(value: np.ndarray) -> None:
    (result,) = evaluate(imported(lambda: tf.constant(value)), [])
    assert result.dtype == value.dtype and result.shape == value.shape
    assert result.tobytes() == value.tobytes()


@pytest.mark.parametrize("minor_to_major", [(2, 1, 0), (0, 1, 2), (1, 2, 0), (0, 2, 1)])
def test_literal_in_any_layout_is_read_in_logical_order(minor_to_major: tuple[int, ...]) -> None:
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    literal = xla_data_pb2.LiteralProto()
    literal.shape.element_type = xla_data_pb2.F32
    literal.shape.dimensions.extend(value.shape)
    literal.shape.layout.minor_to_major.extend(minor_to_major)
    literal.f32s.extend(value.transpose(minor_to_major[::-1]).ravel())
    np.testing.assert_array_equal(literal_to_numpy(literal), value)


def test_called_computations_keep_the_serialised_order() -> None:
    module = imported(lambda x: tf.while_loop(lambda i: i < 5, lambda i: (i + 2,), (x,)), np.array(0, np.int32))
    loop = next(i for c in module.computations() for i in c.instructions if i.opcode == "while")
    body, condition = loop.called
    assert condition.root.shape == Shape("pred")
    assert body.root.shape == loop.shape
    assert "body=%" + body.name in print_module(module)


def test_custom_call_carries_target_and_configuration() -> None:
    proto = hlo_pb2.HloModuleProto.FromString(serialized(lambda x: x + 1, np.ones(3, np.float32)))
    (entry,) = [c for c in proto.computations if c.id == proto.entry_computation_id]
    add = next(i for i in entry.instructions if i.opcode == "add")
    add.opcode, add.custom_call_target, add.backend_config = "custom-call", "example", b'{"\xc3\xa9": 1}'
    module = import_hlo(proto.SerializeToString())
    call = next(i for i in module.entry.instructions if i.opcode == "custom-call")
    assert (call["custom_call_target"], call["backend_config"]) == ("example", b'{"\xc3\xa9": 1}')
    with pytest.raises(UnsupportedOperation, match="example"):
        evaluate(module, [np.ones(3, np.float32)])
