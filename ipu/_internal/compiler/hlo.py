"""Imports an HloModuleProto, as TensorFlow serialises it, into the engine's intermediate representation."""

from __future__ import annotations

import re
from collections.abc import Callable

from tensorflow.compiler.xla.service import hlo_pb2

from engine.errors import InternalError, UnsupportedOperation
from engine.ir import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from engine.ir.device_operations import TOKEN
from engine.ir.shape import NUMPY_TYPES
from engine.ir.value_checks import is_value_check
from engine.passes.dynamic_dimension_rules import resolve_dynamic_dimensions
from engine.passes.rewriting import changed
from ipu._internal.compiler.costly_expansions import expanded, in_order, is_costly
from ipu._internal.compiler.custom_calls import SUFFIX
from ipu._internal.compiler.hlo_attributes import PRIMITIVE_TYPES, Proto, read_attributes
from ipu._internal.compiler.nan_choices import as_in_kernels
from ipu._internal.compiler.refusals import ShapeFromValues
from ipu._internal.compiler.value_checks import SUFFIX as CHECK_SUFFIX


def import_hlo(serialized: bytes) -> Module:
    """The module in the bytes of an HloModuleProto (the compiler's stage "hlo_serialized").

    Parameter k is input k of the traced function; `aliases` maps an updated parameter to its result.
    Dimensions are static: a dynamic one is computed at its upper bound, with its size as a further value.
    Raises ShapeFromValues where that is impossible, UnsupportedOperation for element types that the engine lacks,
    DynamicOperand as costly_expansions.py.
    """
    proto = hlo_pb2.HloModuleProto.FromString(serialized)
    computations: dict[int, Computation] = {}
    waiting = {computation.id: computation for computation in proto.computations}

    def computation_of(identifier: int) -> Computation:
        if identifier not in computations:
            computations[identifier] = _computation(waiting[identifier], computation_of)
        return computations[identifier]

    entry = computation_of(proto.entry_computation_id)
    try:
        return resolve_dynamic_dimensions(Module(_name(proto), entry, _aliases(proto)))
    except UnsupportedOperation as error:
        raise ShapeFromValues(str(error)) from None


def _name(proto: Proto) -> str:
    """The name of a module or computation, without the suffix of costly_kernels.py."""
    return re.sub(rf"{SUFFIX}\d+", "", proto.name)


def _aliases(proto: Proto) -> dict[int, int]:
    """Results by aliased parameter; an empty result index means one result, and a root that is not a tuple."""
    aliases = {}
    for entry in proto.input_output_alias.entries:
        if entry.parameter_shape_index or len(entry.output_shape_index) > 1:
            raise InternalError(
                f"Expected an alias between a whole parameter and a whole result. "
                f"Received: parameter {entry.parameter_number}{list(entry.parameter_shape_index)} "
                f"for result {list(entry.output_shape_index)}."
            )
        aliases[entry.parameter_number] = entry.output_shape_index[0] if entry.output_shape_index else 0
    return aliases


def _computation(proto: Proto, computation_of: Callable[[int], Computation]) -> Computation:
    """The imported computation; a serialised one lists operands before their users."""
    by_id: dict[int, Instruction] = {}
    instructions: list[Instruction] = []
    dynamic = {each.id for each in proto.instructions if any(each.shape.is_dynamic_dimension)}
    for each in proto.instructions:
        read = Instruction(
            name=each.name,
            opcode=each.opcode,
            shape=_shape(each.shape, each),
            operands=tuple(by_id[operand] for operand in each.operand_ids),
            attributes=read_attributes(each),
            called=tuple(computation_of(callee) for callee in each.called_computation_ids),
            op_name=re.sub(rf"{CHECK_SUFFIX}\d+$", "", each.metadata.op_name),
        )
        is_dynamic = not dynamic.isdisjoint(each.operand_ids)
        if is_value_check(read):
            # Users take the operand itself, so that no pass sees a check between them.
            instructions.append(changed(read, shape=TOKEN))
            by_id[each.id] = read.operands[0]
            continue
        instructions += expanded(read, is_dynamic) if is_costly(read) else as_in_kernels(read, each.metadata.op_type)
        by_id[each.id] = instructions[-1]
    if len(instructions) > len(by_id) and not any(each.control_predecessor_ids for each in proto.instructions):
        instructions = in_order(instructions)
    return Computation(_name(proto), instructions, by_id[proto.root_id])


def _shape(shape: Proto, instruction: Proto) -> AnyShape:
    """The logical shape; a layout is the order of elements in memory, and never changes the meaning of an operation."""
    element_type = PRIMITIVE_TYPES[shape.element_type]
    if element_type == "tuple":
        return TupleShape(tuple(_shape(element, instruction) for element in shape.tuple_shapes))
    if element_type == "token":
        return TupleShape()
    origin = f"{instruction.opcode} %{instruction.name}" + (
        f" from {instruction.metadata.op_name}" if instruction.metadata.op_name else ""
    )
    if element_type not in NUMPY_TYPES:
        raise UnsupportedOperation(
            f"Expected an element type among {', '.join(NUMPY_TYPES)}. Received: {element_type} in {origin}. "
            f"Cast to one of them (float16 is the nearest to an 8-bit float)."
        )
    return Shape(element_type, tuple(shape.dimensions))
