"""Folds transposes, reversals, padding and sums over batches into the dots and convolutions before or after them."""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.passes.rewriting import RuleSet, Visit, rewrite, rewrite_each
from engine.passes.rules import convolution, dot

RULES = RuleSet(dot.RULES, convolution.RULES)


def fold_into_dot(module: Module) -> Module:
    """Folds a transpose or sum of a dot's or convolution's result only if the product has no other reader."""
    return rewrite(rewrite_each(module, _fold_results), RULES)


def _fold_results(computation: Computation) -> Visit:
    users = computation.users()
    alone = {
        i
        for i in computation.instructions
        if i.opcode in ("transpose", "reduce")
        and len(users[i.operands[0]]) == 1
        and i.operands[0] is not computation.root
    }
    single = {i for i in computation.instructions if len(users[i]) == 1 and i is not computation.root}

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        if before.opcode == "convert" and all(each in single for each in _chain_below(before)):
            return dot.summed_16_bit_dot(instruction)
        if before not in alone:
            return None
        product = instruction.operands[0]
        if instruction.opcode == "reduce":
            return dot.summed_dot(instruction, product) if product.opcode == "dot" else None
        if product.opcode == "dot":
            return dot.transposed_dot(instruction, product)
        return convolution.transposed_convolution(instruction, product) if product.opcode == "convolution" else None

    return visit


def _chain_below(instruction: Instruction) -> list[Instruction]:
    """The next three instructions along first operands; fewer where the chain ends."""
    chain = [instruction]
    while len(chain) <= 3 and chain[-1].operands:
        chain.append(chain[-1].operands[0])
    return chain[1:]
