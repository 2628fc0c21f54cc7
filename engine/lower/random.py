"""Lowers rng-bit-generator and rng to the codelets that generate random bits."""

from __future__ import annotations

from engine.codelets.random import (
    SCRATCH_BYTES,
    NextState,
    draw_state,
    encode_philox_bits,
    encode_three_fry_bits,
    next_state,
    philox_bits,
    philox_counters,
    three_fry_bits,
    three_fry_counters,
)
from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.ops.distributions import bits_of, distribution
from engine.ops.random import PHILOX, check_algorithm
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork
from engine.runtime.generators import RNG_STATE, ROUNDING_STATE


@lowering("rng-bit-generator")
def lower_rng_bit_generator(context: Context, instruction: Instruction) -> Value:
    """(next state, bits); the state only if it is read. Raises UnsupportedOperation for an unknown algorithm."""
    check_algorithm(instruction)
    (operand,) = instruction.operands
    state = context.buffer(operand)
    following, bits = (context.new_buffer(f"{instruction.name}.{k}", s) for k, s in enumerate(instruction.tuple_shapes))
    uses_philox = instruction["rng_algorithm"] in PHILOX
    emit = _emit_philox if uses_philox else _emit_three_fry
    emit(context, instruction, state, bits)
    if _next_state_is_read(context, instruction):
        counters = philox_counters(bits.shape) if uses_philox else three_fry_counters(bits.shape)
        _emit_next_state(context, instruction, state, following, counters)
    return following, bits


@lowering("rng")
def lower_rng(context: Context, instruction: Instruction) -> Value:
    """Numbers from random bits, which are drawn from a copy of the hidden state; copying it advances it."""
    computation = distribution(instruction)
    shape = instruction.array_shape
    drawn = Instruction(f"{instruction.name}.bits", "parameter", bits_of(instruction))
    bits = context.new_buffer(drawn.name, drawn.array_shape)
    state = context.new_buffer(f"{instruction.name}.state", RNG_STATE.shape)
    if shape.elements:
        _emit_draw(context, instruction, state, philox_counters(bits.shape), RNG_STATE.address)
        _emit_philox(context, instruction, state, bits)
    context.values[drawn] = bits
    operands = (drawn, *instruction.operands)
    loops = tuple(size for size in shape.dimensions if size != 1)
    fusion = Instruction(instruction.name, "fusion", shape, operands, {"loops": loops, "results": 1}, (computation,))
    fusion.op_name = instruction.op_name
    if instruction in context.targets:
        context.targets[fusion] = context.targets[instruction]
    return context.buffer(fusion)


@lowering("rng-get-and-update-state")
def lower_rng_get_and_update_state(context: Context, instruction: Instruction) -> Value:
    """A copy of the rounding state, which the same compute set advances."""
    state = context.result_buffer(instruction)
    _emit_draw(context, instruction, state, instruction["delta"], ROUNDING_STATE.address)
    return state


def _next_state_is_read(context: Context, instruction: Instruction) -> bool:
    users = [i for c in context.module.computations() for i in c.instructions if instruction in i.operands]
    roots = [c.root for c in context.module.computations()]
    return instruction in roots or any(u.opcode != "get-tuple-element" or u["tuple_index"] == 0 for u in users)


def _emit_philox(context: Context, instruction: Instruction, state: Buffer, bits: Buffer) -> None:
    parameters, units = encode_philox_bits(bits.shape, Address(state), Address(bits), state.shape.elements)
    # A counter yields four words: elements of up to 32 bits, or the two halves of two 64-bit elements.
    elements = parameters.unit * (2 if bits.shape.dtype.itemsize == 8 else 4)
    work = CodeletWork(philox_bits, parameters, scratch=SCRATCH_BYTES)
    written = Span(bits, Partition(1, bits.shape.elements, elements))
    context.emit_for(instruction, work, units, [state], [written], _work_estimate(bits.shape), suffix=".bits")


def _emit_three_fry(context: Context, instruction: Instruction, state: Buffer, bits: Buffer) -> None:
    parameters, units = encode_three_fry_bits(bits.shape, Address(state), Address(bits))
    work = CodeletWork(three_fry_bits, parameters)
    context.emit_for(instruction, work, units, [state], [bits], _work_estimate(bits.shape), suffix=".bits")


def _work_estimate(bits: Shape) -> WorkEstimate:
    return WorkEstimate({"rng-bit-generator": bits.elements}, 0, bits.element_type)


def _emit_next_state(
    context: Context, instruction: Instruction, state: Buffer, following: Buffer, counters: int
) -> None:
    parameters = NextState(
        source=Address(state), target=Address(following), state_words=state.shape.elements, distance=counters
    )
    work = CodeletWork(next_state, parameters)
    context.emit_for(instruction, work, 1, [state], [following], suffix=".next", one_worker=True)


def _emit_draw(context: Context, instruction: Instruction, state: Buffer, counters: int, address: int) -> None:
    # Only the first worker ever touches a hidden state, in the program's order: it needs no span.
    words = state.shape.elements
    parameters = NextState(source=address, target=Address(state), state_words=words, distance=counters)
    context.emit_for(instruction, CodeletWork(draw_state, parameters), 1, [], [state], suffix=".draw", one_worker=True)
