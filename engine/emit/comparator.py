"""A sort's comparator as machine code: `void compare(i64 table, i64 i, i64 j, i64 answer)`.

It compares elements i and j of all operands. The table holds an address and a step in bytes for each operand, and
the answer, 1 or 0, is written to a byte.
"""

from __future__ import annotations

from engine.emit.codelet import SIGNATURE
from engine.emit.lanes import I64, Lanes
from engine.emit.loops import word
from engine.emit.reduce import apply_body
from engine.machine_code.llvm import ir
from engine.program.nest import Argument, Comparator


def emit_comparator(comparator: Comparator, name: str) -> str:
    """Writes the LLVM IR text of a module with the one function `name`."""
    module = ir.Module(name)
    function = ir.Function(module, SIGNATURE, name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    table, i, j, answer = function.args
    lanes, body = Lanes(builder, 1), comparator.body
    words = builder.inttoptr(table, I64.as_pointer())

    def element(argument: Argument) -> ir.Value:
        operand, second = divmod(argument.number, 2)
        row, step = (builder.load(builder.gep(words, [word(2 * operand + k)])) for k in range(2))
        address = builder.add(row, builder.mul(j if second else i, step))
        return lanes.load(address, argument.element_type)

    arguments = {node.number: element(node) for node in body.nodes if isinstance(node, Argument)}
    values = [arguments.get(number, word(0)) for number in range(1 + max(arguments, default=-1))]
    (result,) = apply_body(lanes, body, values)
    lanes.store(result, answer, "pred")
    builder.ret_void()
    return str(module)
