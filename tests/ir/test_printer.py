"""The printer writes HLO text: one line for each instruction, with all that a reader needs."""

from __future__ import annotations

from engine.ir import ConvolutionDimensionNumbers, Instruction, Shape, WindowDimension
from engine.ir.builder import Builder
from engine.ir.printer import print_instruction, print_module


def test_module_is_printed_whole_with_callees_first() -> None:
    b = Builder("step")
    x, w = b.parameter("f32", (2, 5)), b.parameter("f32", (5, 3))
    total = b.reduce(b.dot(x, w), b.constant(0.0), (0, 1))
    text = print_module(b.module(b.tuple(total, w), aliases={1: 1}))
    assert text == (
        "HloModule step, input_output_alias={ {1}: 1 }\n"
        "\n"
        "%add (parameter.0: f32[], parameter.1: f32[]) -> f32[] {\n"
        "  %parameter.0 = f32[] parameter(0)\n"
        "  %parameter.1 = f32[] parameter(1)\n"
        "  ROOT %add.2 = f32[] add(%parameter.0, %parameter.1)\n"
        "}\n"
        "\n"
        "ENTRY %step (parameter.0: f32[2,5], parameter.1: f32[5,3]) -> (f32[], f32[5,3]) {\n"
        "  %parameter.0 = f32[2,5] parameter(0)\n"
        "  %parameter.1 = f32[5,3] parameter(1)\n"
        "  %dot.2 = f32[2,3] dot(%parameter.0, %parameter.1), dot_dimension_numbers="
        "{lhs_contracting_dimensions={1}, rhs_contracting_dimensions={0}}\n"
        "  %constant.3 = f32[] constant(0.0)\n"
        "  %reduce.4 = f32[] reduce(%dot.2, %constant.3), dimensions={0, 1}, to_apply=%add\n"
        "  ROOT %tuple.5 = (f32[], f32[5,3]) tuple(%reduce.4, %parameter.1)\n"
        "}\n"
    )


def test_large_constants_are_left_out() -> None:
    b = Builder()
    assert "constant({1, 2, 3})" in print_instruction(b.constant([1, 2, 3], "s32"))
    assert "constant({true, false})" in print_instruction(b.constant([True, False], "pred"))
    assert "constant({...})" in print_instruction(b.constant(range(17), "s32"))


def test_windows_and_convolution_labels_are_short() -> None:
    window = (WindowDimension(3, 2, 1, -1), WindowDimension(2, 1, 0, 0, 1, 2))
    numbers = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    b = Builder()
    x, w = b.parameter("f32", (2, 8, 8, 3)), b.parameter("f32", (3, 2, 3, 4))
    text = print_instruction(b.convolution(x, w, window, numbers))
    assert "window={size=3x2 stride=2x1 pad=1_-1x0_0 lhs_dilate=1x2}" in text
    assert "convolution_dimension_numbers=b01f_01io->b01f" in text


def test_origin_slices_and_branches() -> None:
    b = Builder()
    x = b.parameter("f32", (5,))
    sliced = b.slice(x, (1, 5, 2))
    assert "slice_dimensions={{start=1, limit=5, stride=2}}" in print_instruction(sliced)
    named = Instruction("a", "copy", Shape("f32", (5,)), (x,), op_name="layer/copy")
    assert print_instruction(named).endswith('metadata={op_name="layer/copy"}')
    branch = b.build(x)
    text = print_instruction(b.conditional(b.parameter("pred"), [branch, branch], [x, x]))
    assert text.endswith("branch_computations={%main, %main}")
