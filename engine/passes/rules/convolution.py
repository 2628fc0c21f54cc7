"""Transposes, reversals and padding around a convolution become part of its dimension numbers and window."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from engine.ir import ConvolutionDimensionNumbers, Instruction, PaddingDimension, WindowDimension
from engine.passes.rewriting import RuleSet, changed
from engine.passes.splats import is_positive_zero

RULES = RuleSet()


@RULES.on("convolution")
def transposed_operand(instruction: Instruction) -> Instruction | None:
    """Reads the input or the kernel without its transpose."""
    operands = list(instruction.operands)
    for index, prefix in enumerate(("input_", "kernel_")):
        operand = operands[index]
        if operand.opcode == "transpose":
            operands[index] = operand.operands[0]
            new = _renumbered(instruction, prefix, dict(enumerate(operand["dimensions"])))
            return changed(instruction, operands=operands, convolution_dimension_numbers=new)
    return None


def transposed_convolution(transpose: Instruction, convolution: Instruction) -> Instruction:
    """The convolution whose result is the transposed result of another."""
    position = {old: new for new, old in enumerate(transpose["dimensions"])}
    new = _renumbered(convolution, "output_", position)
    return changed(convolution, shape=transpose.shape, convolution_dimension_numbers=new)


def _renumbered(convolution: Instruction, prefix: str, new: dict[int, int]) -> ConvolutionDimensionNumbers:
    """The dimension numbers, with new dimensions in the fields whose names begin with a prefix."""
    numbers: ConvolutionDimensionNumbers = convolution["convolution_dimension_numbers"]
    found: dict[str, Any] = {
        name: tuple(new[d] for d in old) if isinstance(old, tuple) else new[old]
        for name, old in asdict(numbers).items()
        if name.startswith(prefix)
    }
    return replace(numbers, **found)


@RULES.on("convolution")
def reversed_kernel(instruction: Instruction) -> Instruction | None:
    """A kernel reversed along spatial dimensions becomes a window that is reversed along them."""
    lhs, operand = instruction.operands
    spatial = instruction["convolution_dimension_numbers"].kernel_spatial_dimensions
    if operand.opcode != "reverse" or not set(operand["dimensions"]) <= set(spatial):
        return None
    window = tuple(
        replace(w, window_reversal=not w.window_reversal) if d in operand["dimensions"] else w
        for d, w in zip(spatial, instruction["window"], strict=True)
    )
    return changed(instruction, operands=(lhs, operand.operands[0]), window=window)


@RULES.on("convolution", of="pad")
def padded_lhs(instruction: Instruction) -> Instruction | None:
    """Zeros around and between the input's spatial elements become the window's padding and base dilation."""
    operand, rhs = instruction.operands
    if not is_positive_zero(operand.operands[1]):
        return None
    config = operand["padding_config"]
    spatial = instruction["convolution_dimension_numbers"].input_spatial_dimensions
    if any(padding != PaddingDimension(0, 0) for d, padding in enumerate(config) if d not in spatial):
        return None
    pairs = zip(spatial, instruction["window"], strict=True)
    window = tuple(_padded_window(w, config[d]) for d, w in pairs)
    if any(w is None for w in window):
        return None
    return changed(instruction, operands=(operand.operands[0], rhs), window=window)


def _padded_window(window: WindowDimension, padding: PaddingDimension) -> WindowDimension | None:
    """One dimension's window over the unpadded operand; None if no window is equivalent."""
    low, high = padding.edge_padding_low, padding.edge_padding_high
    cuts_then_pads = (low < 0 < window.padding_low) or (high < 0 < window.padding_high)
    if cuts_then_pads or (padding.interior_padding and window.base_dilation > 1):
        return None
    return replace(
        window,
        padding_low=window.padding_low + low * window.base_dilation,
        padding_high=window.padding_high + high * window.base_dilation,
        base_dilation=window.base_dilation * (padding.interior_padding + 1),
    )
