"""Prints modules in the style of HLO text, for people to read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from engine.ir.attributes import ConvolutionDimensionNumbers, Window, WindowDimension
from engine.ir.module import Computation, Instruction, Module
from engine.ir.opcodes import OPCODES

LONGEST_TEXT = 300
"""Characters of an attribute; longer ones, such as the code of a vertex, are cut off."""
LARGEST_CONSTANT = 16
IN_PARENTHESES = frozenset({"parameter_number", "literal"})


def print_module(module: Module) -> str:
    """The whole module, callees first; constants of more than 16 elements are elided as {...}."""
    aliases = ", ".join(f"{{{index}}}: {number}" for number, index in module.aliases.items())
    header = f"HloModule {module.name}" + (f", input_output_alias={{ {aliases} }}" if aliases else "")
    computations = [_print_computation(c, c is module.entry) for c in module.computations()]
    return "\n\n".join([header, *computations]) + "\n"


def _print_computation(computation: Computation, is_entry: bool) -> str:
    parameters = ", ".join(f"{p.name}: {p.shape}" for p in computation.parameters)
    entry = "ENTRY " if is_entry else ""
    lines = [f"{entry}%{computation.name} ({parameters}) -> {computation.root.shape} {{"]
    for instruction in computation.instructions:
        root = "ROOT " if instruction is computation.root else ""
        lines.append(f"  {root}{print_instruction(instruction)}")
    return "\n".join([*lines, "}"])


def print_instruction(instruction: Instruction) -> str:
    """One line: name, shape, opcode, operands, attributes, called computations and origin."""
    parts = [
        f"{name}={_print_attribute(value)}"
        for name, value in instruction.attributes.items()
        if name not in IN_PARENTHESES
    ]
    if instruction.called:
        parts.append(_print_called(instruction))
    if instruction.op_name:
        parts.append(f'metadata={{op_name="{instruction.op_name}"}}')
    head = f"%{instruction.name} = {instruction.shape} {instruction.opcode}({_print_operands(instruction)})"
    return ", ".join([head, *parts])


def _print_operands(instruction: Instruction) -> str:
    if instruction.opcode == "parameter":
        return str(instruction["parameter_number"])
    if instruction.opcode == "constant":
        return _print_literal(instruction["literal"])
    return ", ".join(f"%{operand.name}" for operand in instruction.operands)


def _print_literal(literal: np.ndarray) -> str:
    if literal.size > LARGEST_CONSTANT:
        return "{...}"
    text = str(literal.tolist()).replace("[", "{").replace("]", "}")
    return text.replace("True", "true").replace("False", "false")


def _print_called(instruction: Instruction) -> str:
    row = OPCODES.get(instruction.opcode)
    names = row.called if row else ()
    if len(names) > 1 and len(names) == len(instruction.called):
        return ", ".join(f"{name}=%{callee.name}" for name, callee in zip(names, instruction.called, strict=True))
    if len(instruction.called) == 1:
        return f"to_apply=%{instruction.called[0].name}"
    return f"branch_computations={{{', '.join('%' + callee.name for callee in instruction.called)}}}"


def _print_attribute(value: Any) -> str:
    if isinstance(value, ConvolutionDimensionNumbers):
        return _print_convolution_numbers(value)
    if is_dataclass(value):
        shown = {each.name: getattr(value, each.name) for each in fields(value)}
        return "{" + ", ".join(f"{name}={_print_attribute(v)}" for name, v in shown.items() if v != ()) + "}"
    if isinstance(value, tuple) and value and isinstance(value[0], WindowDimension):
        return _print_window(value)
    if isinstance(value, tuple):
        return "{" + ", ".join(_print_attribute(v) for v in value) + "}"
    text = str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def _print_window(window: Window) -> str:
    """Prints a window as HLO does, with only the fields that differ from the default; sizes always."""
    fields: dict[str, tuple[list[str], str]] = {
        "size": ([str(d.size) for d in window], ""),
        "stride": ([str(d.stride) for d in window], "1"),
        "pad": ([f"{d.padding_low}_{d.padding_high}" for d in window], "0_0"),
        "lhs_dilate": ([str(d.base_dilation) for d in window], "1"),
        "rhs_dilate": ([str(d.window_dilation) for d in window], "1"),
        "rhs_reversal": ([str(int(d.window_reversal)) for d in window], "0"),
    }
    shown = [f"{name}={'x'.join(values)}" for name, (values, default) in fields.items() if set(values) != {default}]
    return "{" + " ".join(shown) + "}"


def _labels(positions: dict[int, str]) -> str:
    return "".join(positions[d] for d in range(len(positions)))


def _print_convolution_numbers(n: ConvolutionDimensionNumbers) -> str:
    """HLO's dim_labels: b01f_01io->b01f."""
    lhs = {d: str(k) for k, d in enumerate(n.input_spatial_dimensions)}
    rhs = {d: str(k) for k, d in enumerate(n.kernel_spatial_dimensions)}
    out = {d: str(k) for k, d in enumerate(n.output_spatial_dimensions)}
    lhs |= {n.input_batch_dimension: "b", n.input_feature_dimension: "f"}
    rhs |= {n.kernel_input_feature_dimension: "i", n.kernel_output_feature_dimension: "o"}
    out |= {n.output_batch_dimension: "b", n.output_feature_dimension: "f"}
    return f"{_labels(lhs)}_{_labels(rhs)}->{_labels(out)}"
