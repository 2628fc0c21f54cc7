"""The verifier accepts sound modules and names the instruction that breaks one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.errors import InternalError
from engine.ir import (
    Computation,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Instruction,
    Module,
    PaddingDimension,
    ScatterDimensionNumbers,
    Shape,
    SliceDimension,
    TupleShape,
    WindowDimension,
)
from engine.ir.builder import Builder, binary_computation
from engine.ir.opcodes import OPCODES
from engine.ir.verifier import verify
from engine.ops import DEFINITIONS

F32, PRED = Shape("f32"), Shape("pred")
TEN = Shape("f32", (2, 5))
CONVOLUTION = ConvolutionDimensionNumbers(0, 1, (2,), 1, 0, (2,), 0, 1, (2,))


def sound() -> Module:
    b = Builder()
    x, w = b.parameter("f32", (2, 5)), b.parameter("f32", (5, 3))
    y = b.dot(x, w)
    total = b.reduce(y, b.constant(0.0), (0, 1))
    return b.module(b.tuple(total, b.add(w, w)), aliases={1: 1})


def test_sound_module_is_accepted_and_left_alone() -> None:
    module = sound()
    before = [repr(i) for i in module.entry.instructions]
    verify(module)
    assert [repr(i) for i in module.entry.instructions] == before


def swap_operands_and_users(module: Module) -> None:
    module.entry.instructions.reverse()


def repeat_a_parameter_number(module: Module) -> None:
    module.entry.instructions[1].attributes["parameter_number"] = 0


def leave_out_a_parameter_number(module: Module) -> None:
    module.entry.instructions[1].attributes["parameter_number"] = 2


def alias_beyond_the_results(module: Module) -> None:
    module.aliases[1] = 2


def alias_beyond_the_parameters(module: Module) -> None:
    module.aliases[7] = 1


def alias_of_another_shape(module: Module) -> None:
    module.aliases = {0: 1}


def alias_one_result_twice(module: Module) -> None:
    module.entry.instructions[0].shape = module.entry.instructions[1].shape
    module.entry.instructions[2].attributes["dot_dimension_numbers"] = DotDimensionNumbers((0,), (0,))
    module.entry.instructions[2].shape = Shape("f32", (3, 3))
    module.aliases = {0: 1, 1: 1}


def take_a_foreign_root(module: Module) -> None:
    module.entry.root = Instruction("foreign", "parameter", F32, (), {"parameter_number": 0})


def use_a_name_twice(module: Module) -> None:
    module.entry.instructions[1].name = module.entry.instructions[0].name


def claim_another_shape(module: Module) -> None:
    module.entry.instructions[2].shape = Shape("f32", (2, 4))


def break_a_called_computation(module: Module) -> None:
    (body,) = next(i for i in module.entry.instructions if i.opcode == "reduce").called
    body.root.shape = Shape("f64")


def call_a_computation_from_itself(module: Module) -> None:
    (body,) = next(i for i in module.entry.instructions if i.opcode == "reduce").called
    body.root.called = (body,)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (call_a_computation_from_itself, "no recursion"),
        (swap_operands_and_users, "before its user"),
        (repeat_a_parameter_number, "parameter number 1"),
        (leave_out_a_parameter_number, "parameter number 1"),
        (alias_beyond_the_results, "2 results"),
        (alias_beyond_the_parameters, "2 parameters"),
        (alias_of_another_shape, "the shape of parameter 0"),
        (alias_one_result_twice, "one parameter for each aliased result"),
        (take_a_foreign_root, "root"),
        (use_a_name_twice, "each name once"),
        (claim_another_shape, r"Expected the shape f32\[2,3\].*dot"),
        (break_a_called_computation, r"Expected the shape f32\[\].*add"),
    ],
)
def test_damage_is_named(damage: Callable[[Module], None], message: str) -> None:
    module = sound()
    damage(module)
    with pytest.raises(InternalError, match=message):
        verify(module)


def of(
    opcode: str, result: object, *operands: Shape, called: tuple[Computation, ...] = (), **attributes: object
) -> Module:
    b = Builder()
    parameters = [b.parameter_of(o) for o in operands]
    b.instruction(opcode, result, parameters, called, **attributes)  # type: ignore[arg-type]
    return b.module()


ADD = binary_computation("add", "f32")
WINDOW = (WindowDimension(2), WindowDimension(2))
WRONG = {
    "add": of("add", TEN, TEN, Shape("f32", (5, 2))),
    "is-finite": of("is-finite", TEN, TEN),
    "abs": of("abs", Shape("c64"), Shape("c64")),
    "complex": of("complex", Shape("c64"), Shape("s32"), Shape("s32")),
    "compare": of("compare", TEN, TEN, TEN, direction="LT"),
    "select": of("select", TEN, Shape("f32", (2, 5)), TEN, TEN),
    "clamp": of("clamp", TEN, Shape("f32", (5,)), TEN, F32),
    "convert": of("convert", Shape("s32", (5, 2)), TEN),
    "bitcast-convert": of("bitcast-convert", Shape("u8", (2, 5)), TEN),
    "reshape": of("reshape", Shape("f32", (3, 3)), TEN),
    "broadcast": of("broadcast", Shape("f32", (5, 2)), TEN, dimensions=(0, 1)),
    "transpose": of("transpose", Shape("f32", (5, 2)), TEN, dimensions=(1, 1)),
    "slice": of("slice", TEN, TEN, slice_dimensions=(SliceDimension(0, 2), SliceDimension(0, 6))),
    "pad": of("pad", TEN, TEN, F32, padding_config=(PaddingDimension(1, 0), PaddingDimension(0, 0))),
    "concatenate": of("concatenate", TEN, TEN, Shape("f32", (3, 5)), dimensions=(1,)),
    "iota": of("iota", TEN, iota_dimension=2),
    "constant": of("constant", TEN, literal=np.zeros((5, 2), np.float32)),
    "get-tuple-element": of("get-tuple-element", F32, TEN, tuple_index=0),
    "tuple": of("tuple", TupleShape((F32,)), TEN),
    "call": of("call", F32, TEN, TEN, called=(ADD,)),
    "while": of("while", F32, F32, called=(ADD, ADD)),
    "conditional": of("conditional", F32, PRED, F32, F32, called=(ADD, ADD)),
    "dot": of("dot", F32, TEN, TEN, dot_dimension_numbers=DotDimensionNumbers((1,), (0,))),
    "convolution": of(
        "convolution",
        Shape("f32", (1, 3, 4)),
        *(Shape("f32", (1, 2, 5)), Shape("f32", (3, 1, 2))),
        window=(WindowDimension(2),),
        convolution_dimension_numbers=CONVOLUTION,
    ),
    "reduce": of("reduce", Shape("f32", (2,)), TEN, F32, called=(ADD,), dimensions=(0,)),
    "reduce-window": of("reduce-window", TEN, TEN, F32, called=(ADD,), window=WINDOW),
    "select-and-scatter": of("select-and-scatter", TEN, TEN, TEN, F32, called=(ADD, ADD), window=WINDOW),
    "gather": of(
        "gather",
        Shape("f32", (3, 4)),
        *(TEN, Shape("s32", (3, 1))),
        gather_dimension_numbers=GatherDimensionNumbers((1,), (0,), (0,), 1),
        gather_slice_sizes=(1, 5),
    ),
    "scatter": of(
        "scatter",
        TEN,
        *(TEN, Shape("s32", (3, 1)), Shape("f32", (4, 5))),
        called=(ADD,),
        scatter_dimension_numbers=ScatterDimensionNumbers((1,), (0,), (0,), 1),
    ),
    "dynamic-slice": of("dynamic-slice", TEN, TEN, Shape("s32"), dynamic_slice_sizes=(2, 5)),
    "dynamic-update-slice": of("dynamic-update-slice", TEN, TEN, Shape("f32", (3, 5)), Shape("s32"), Shape("s32")),
    "sort": of("sort", TEN, TEN, called=(ADD,), dimensions=(0,)),
}


@pytest.mark.parametrize("opcode", WRONG)
def test_each_rule_refuses_what_contradicts_it(opcode: str) -> None:
    with pytest.raises(InternalError, match=f"(?s)Expected.*{opcode}"):
        verify(WRONG[opcode])


def test_random_bits_round_floats() -> None:
    verify(of("stochastic-convert", Shape("f16", (2, 5)), TEN, Shape("u32", (2, 5)), overflow="clip"))


def test_missing_attribute_is_named() -> None:
    with pytest.raises(InternalError, match=r"dimensions.*transpose"):
        verify(of("transpose", TEN, TEN))


def test_every_defined_op_has_a_rule_unless_its_shape_is_free() -> None:
    assert {opcode for opcode in DEFINITIONS if OPCODES[opcode].shape is None} == {"custom-call"}
