"""Names that a reader can find in the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.ir import Shape
from engine.ir.op_names import ambiguous_scopes, in_scope_of, readable_name
from engine.profile.program_estimate import estimate
from engine.program.program import Buffer, Span
from engine.program.scopes import name_scopes_of_sums
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
        ("model/encoder/attention/query/einsum_1/Einsum", "encoder/attention/query einsum"),
        ("gradient_tape/mobilenet/Conv_1/convolution/Conv2DBackpropFilter", "Conv_1 convolution (backward)"),
        ("model/ipu_stage_1/block_1/dense/MatMul", "block_1/dense MatMul"),
        ("compile_loss/mean_squared_error/Sum_1", "mean_squared_error Sum"),
        ("rm_sprop/Add_4", "rm_sprop Add"),
        ("SGD/SGD/update_3/AssignAddVariableOp", "SGD"),
        ("cnn_1/dropout/stateless_dropout/Mul", "dropout stateless_dropout"),
        ("cnn_1/dropout_1/stateless_dropout/Mul", "dropout_1 stateless_dropout"),
        ("cnn_1/dropout/Add", "dropout Add"),
        ("gradient_tape/m/lstm/while/gradients/m/lstm/while/cell/mul_1_grad/Mul", "lstm/cell mul (backward)"),
        ("whole_path/gradient_tape/a/dense/MatMul/MatMul_1", "a/dense MatMul (backward)"),
        ("whole_path/gradient_tape/a/rnn/while/gradients/a/rnn/while/cell/mul_1_grad/Mul", "a/rnn/cell mul (backward)"),
        ("recomputed/whole_path/a/dense/Relu", "a/dense Relu (recomputed)"),
        ("Add_4", "Add"),
        ("gradient_tape/Relu", "Relu (backward)"),
    ],
)
def test_readable(op_name: str, readable: str) -> None:
    assert readable_name(op_name) == readable


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "gradient_tape/", "while/", "ipu_stage_0/", "StatefulPartitionedCall/PartitionedCall_1/", "gradients/"),
        *("recomputed/", "gradient_tape/c/while_1/gradients/"),
    ],
)
def test_ambiguous_scopes_are_those_below_what_no_program_writes(prefix: str) -> None:
    assert ambiguous_scopes([f"{prefix}a/dense/MatMul", f"{prefix}b/dense/MatMul"]) == {"a", "b"}
    assert ambiguous_scopes([f"{prefix}a/dense/MatMul", f"{prefix}b/dense_1/MatMul", "a/dense/Relu"]) == set()


@pytest.mark.parametrize("prefix", ["", "whole_path/"])
def test_a_sum_of_gradients_has_the_scope_of_the_latest(prefix: str) -> None:
    assert in_scope_of("AddN_3", "gradient_tape/m/ipu_stage_1/a/dense/MatMul/MatMul_1") == (
        "gradient_tape/m/ipu_stage_1/a/dense/AddN_3"
    )
    program = dense_step()
    earlier, late = (Span(Buffer(name, Shape("f32", (4,)))) for name in ("earlier", "late"))
    sets = [
        replace(program.compute_sets[0], reads=reads, writes=writes, op_name=op_name)
        for reads, writes, op_name in (
            ([], [earlier], f"{prefix}gradient_tape/m/dense_2/MatMul/MatMul"),
            ([], [late], f"{prefix}gradient_tape/m/dense_1/MatMul/MatMul"),
            ([late, earlier], [late], "AddN_2"),
            ([late], [earlier], "AddN"),
        )
    ]
    named = name_scopes_of_sums(replace(program, compute_sets=sets)).compute_sets
    assert [readable_name(each.op_name) for each in named][2:] == 2 * [
        f"{'m/' if prefix else ''}dense_1 AddN (backward)"
    ]


def test_without_an_op_name_the_default_stands() -> None:
    assert readable_name("", "fusion.3") == "fusion.3"
    assert readable_name("") == "unnamed"


def test_an_update_says_what_it_updates() -> None:
    labels = [cost.label for cost in estimate(dense_step(), target("ipu2")).costs]
    assert "sgd update of dense" in labels
    assert "dense MatMul" in labels
    assert "dense MatMul (backward)" in labels
