"""Lowers rng-bit-generator and rng to the codelets that generate random bits."""

from __future__ import annotations

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.ops.distributions import bits_of, distribution
from engine.ops.generators import RNG_STATE, ROUNDING_STATE, WORDS, GeneratorState
from engine.ops.random import PHILOX, check_algorithm
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.base import Array
from engine.program.work.random import DrawWork, NextStateWork, RandomBitsWork, philox_counters


@lowering("rng-bit-generator")
def lower_rng_bit_generator(context: Context, instruction: Instruction) -> Value:
    """(next state, bits); the state only if it is read. Raises UnsupportedOperation for an unknown algorithm."""
    check_algorithm(instruction)
    (operand,) = instruction.operands
    state = context.buffer(operand)
    following, bits = (Buffer(f"{instruction.name}.{k}", s) for k, s in enumerate(instruction.tuple_shapes))
    counters = _emit_bits(context, instruction, state, bits, instruction["rng_algorithm"] in PHILOX)
    if _next_state_is_read(context, instruction):
        work = NextStateWork(Array(Address(state), state.shape), Address(following), counters)
        context.emit_for(instruction, work, 1, [state], [following], suffix=".next", one_worker=True)
    return following, bits


@lowering("rng")
def lower_rng(context: Context, instruction: Instruction) -> Value:
    """Numbers from random bits, which are drawn from a copy of the hidden state; copying it advances it."""
    computation = distribution(instruction)
    shape = instruction.array_shape
    drawn = Instruction(f"{instruction.name}.bits", "parameter", bits_of(instruction))
    bits = Buffer(drawn.name, drawn.array_shape)
    state = Buffer(f"{instruction.name}.state", Shape("u64", (WORDS,)))
    if shape.elements:
        _emit_draw(context, instruction, state, philox_counters(bits.shape), RNG_STATE)
        _emit_bits(context, instruction, state, bits, True)
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
    _emit_draw(context, instruction, state, instruction["delta"], ROUNDING_STATE)
    return state


def _next_state_is_read(context: Context, instruction: Instruction) -> bool:
    users = [i for i in context.module.instructions() if instruction in i.operands]
    roots = [c.root for c in context.module.computations()]
    return instruction in roots or any(u.opcode != "get-tuple-element" or u["tuple_index"] == 0 for u in users)


def _emit_bits(context: Context, instruction: Instruction, state: Buffer, bits: Buffer, is_philox: bool) -> int:
    """Emits random bits, and returns the number of counters that they use."""
    work = RandomBitsWork(Array(Address(state), state.shape), Array(Address(bits), bits.shape), is_philox)
    # A counter of Philox yields four words: elements of up to 32 bits, or the two halves of two 64-bit elements.
    elements = work.unit_counters * (2 if bits.shape.dtype.itemsize == 8 else 4)
    written = Span(bits, Partition(1, bits.shape.elements, elements) if is_philox else None)
    estimate = WorkEstimate({"rng-bit-generator": bits.shape.elements}, 0, bits.shape.element_type)
    context.emit_for(instruction, work, work.unit_count, [state], [written], estimate, suffix=".bits")
    return work.counters


def _emit_draw(
    context: Context, instruction: Instruction, target: Buffer, counters: int, state: GeneratorState
) -> None:
    # Only the first worker ever touches a hidden state, in the program's order: it needs no span.
    work = DrawWork(state, Address(target), counters)
    context.emit_for(instruction, work, 1, [], [target], suffix=".draw", one_worker=True)
