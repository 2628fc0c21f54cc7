"""Names that a reader can find again in the model."""

from __future__ import annotations

import pytest

from engine.profile import estimate, readable_name
from engine.target import target
from tests.profile.programs import dense_step


@pytest.mark.parametrize(
    ("op_name", "readable"),
    [
        ("gradient_tape/sequential_1/dense_1/MatMul/MatMul_1", "dense_1 MatMul (backward)"),
        ("sequential_1/dense_1_2/MatMul", "dense_1_2 MatMul"),
        ("gradient_tape/sequential_1/dense_1/ReluGrad", "dense_1 ReluGrad (backward)"),
        ("gradient_tape/m/conv2d_1/convolution/Conv2DBackpropFilter", "conv2d_1 convolution (backward)"),
        ("functional_1/batch_normalization_1/moments/mean", "batch_normalization_1 moments"),
        ("model/encoder/attention/query/einsum/Einsum", "query einsum"),
        ("compile_loss/mean_squared_error/Sum_1", "mean_squared_error Sum"),
        ("rm_sprop/Add_4", "rm_sprop Add"),
        ("SGD/SGD/update_3/AssignAddVariableOp", "SGD"),
        ("cnn_1/dropout/stateless_dropout/Mul", "stateless_dropout Mul"),
        ("cnn_1/dropout_1/stateless_dropout/Mul", "stateless_dropout Mul"),
        ("cnn_1/dropout/Add", "dropout Add"),
        ("Add_4", "Add"),
        ("gradient_tape/Relu", "Relu (backward)"),
    ],
)
def test_readable(op_name: str, readable: str) -> None:
    assert readable_name(op_name) == readable


def test_without_an_op_name_the_default_stands() -> None:
    assert readable_name("", "fusion.3") == "fusion.3"
    assert readable_name("") == "unnamed"


def test_an_update_says_what_it_updates() -> None:
    labels = [cost.label for cost in estimate(dense_step(), target("ipu2")).costs]
    assert "sgd update of dense" in labels
    assert "dense MatMul" in labels
    assert "dense MatMul (backward)" in labels
