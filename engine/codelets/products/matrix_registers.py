"""Matrix registers (Intel's AMX): blocks of bfloat16 whose products are summed in float32, 16 x 16 at a time.

Where the processor has them, they do sixteen times as many multiply-adds per cycle as float32 vectors.
"""

from __future__ import annotations

from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.memory import I64, POINTER, VOID, call
from engine.codelets.language.switched import switched
from engine.machine_code.llvm import ir

# Tuned on two cores of a Xeon with AVX-512 and AMX (48 KiB first-level, 2 MiB second-level cache), November 2026;
# rows, columns and k are counts.
BLOCK = 16  # rows of a matrix register, and float32 columns of a matrix register that holds sums
K_BLOCK = 512  # the most k at a time; a multiple of a register's k
ELEMENTS = 1 << 17  # of B, whose parts (768 kB) stay in the second-level cache while rows of A stream; likewise of A
MOST_COLUMNS = 1024  # of B split at a time


I8 = ir.IntType(8)
K_PAIR = 2  # bfloat16 along k that are contiguous, in both operands
BLOCK_K = 32  # bfloat16 in a row of a register
REGISTER_BYTES = 1024
GROUP = 2 * BLOCK  # rows, or columns, that are multiplied at a time: two registers of each
SUM_PITCH = 4 * GROUP

TERMS = 3
LARGE, SMALL, TINY = 0, 1, 2  # the parts of a split number
ORDER_A, ORDER_B = (2, 1, 0), (0, 1, 2)  # their positions in memory, in the order of use
PRODUCTS = ((TINY, LARGE), (SMALL, LARGE), (SMALL, SMALL), (LARGE, SMALL), (LARGE, TINY), (LARGE, LARGE))
"""The parts of A and B to multiply, ordered so that few registers change and small products are added first. The three
products that are left out are together at most 2**-24 of the whole."""


BLOCK_BYTES = TERMS * 2 * REGISTER_BYTES + 64
"""Size of a group's parts for a block of k, plus a cache line: without it, the parts of a row along k would share two
cache sets."""


def _shapes(module: ir.Module) -> ir.GlobalVariable:
    """The configuration of the matrix registers: all have full size."""
    name = "whole_matrix_registers"
    if name in module.globals:
        return module.globals[name]
    rows = [BLOCK] * 8 + [0] * 8
    row_bytes = [4 * BLOCK, 0] * 8 + [0] * 16
    content = bytes([1, *[0] * 15, *row_bytes, *rows])
    array = ir.ArrayType(I8, len(content))
    shapes = ir.GlobalVariable(module, array, name)
    shapes.linkage, shapes.global_constant, shapes.align = "internal", True, 64
    shapes.initializer = ir.Constant(array, bytearray(content))
    return shapes


@intrinsic
def begin_matrices(builder: ir.IRBuilder) -> None:
    """Configures the matrix registers for this thread."""
    call(builder, "x86.ldtilecfg", VOID, builder.bitcast(_shapes(builder.module), POINTER))


@intrinsic
def end_matrices(builder: ir.IRBuilder) -> None:
    """Releases the matrix registers, so that the operating system need not save them in a context switch."""
    call(builder, "x86.tilerelease", VOID)


def _write_groups(builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]) -> None:
    """Writes the function for `rows` and `columns` blocks, one or two."""
    (rows, columns), (blocks_of_k, a, b, sums) = divmod(case, 4), arguments
    totals = {(i, j): I8(2 * i + j) for i in range(rows) for j in range(columns)}
    for register in totals.values():
        call(builder, "x86.tilezero", VOID, register)
    entry, loop, done = builder.block, builder.append_basic_block("k"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = [builder.phi(I64) for _ in range(3)]
    _one_block_of_k(builder, phis[0], phis[1], rows, columns, totals)
    later = [builder.add(phi, I64(size)) for phi, size in zip(phis, (BLOCK_BYTES, BLOCK_BYTES, -1), strict=True)]
    for phi, first, following in zip(phis, (a, b, blocks_of_k), later, strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed(">", later[-1], I64(0)), loop, done)
    builder.position_at_end(done)
    for (i, j), register in totals.items():
        offset = builder.add(sums, I64(SUM_PITCH * BLOCK * i + 4 * BLOCK * j))
        call(builder, "x86.tilestored64", VOID, register, builder.inttoptr(offset, POINTER), I64(SUM_PITCH))


def _one_block_of_k(
    builder: ir.IRBuilder, a: ir.Value, b: ir.Value, rows: int, columns: int, totals: dict[tuple[int, int], ir.Constant]
) -> None:
    registers_a, registers_b = [I8(4), I8(5)][:rows], [I8(6), I8(7)][:columns]
    loaded: tuple[int | None, int | None] = None, None
    for term_a, term_b in PRODUCTS:
        if loaded[0] != term_a:
            _load(builder, registers_a, a, ORDER_A[term_a])
        if loaded[1] != term_b:
            _load(builder, registers_b, b, ORDER_B[term_b])
        loaded = term_a, term_b
        for (i, j), total in totals.items():
            call(builder, "x86.tdpbf16ps", VOID, total, registers_a[i], registers_b[j])


def _load(builder: ir.IRBuilder, registers: list[ir.Constant], base: ir.Value, offset_of_term: int) -> None:
    for number, register in enumerate(registers):
        offset = builder.add(base, I64(REGISTER_BYTES * (2 * offset_of_term + number)))
        call(builder, "x86.tileloadd64", VOID, register, builder.inttoptr(offset, POINTER), I64(4 * BLOCK))


multiply_groups = switched("multiply_groups", (5, 6, 9, 10), _write_groups)
"""`multiply_groups(4 * row_blocks + column_blocks, blocks_of_k, a, b, sums)`: the product of two packed groups.

sums[32, 32] = the product of a group of rows and a group of columns, of one or two blocks each. a, b: bfloat16
[block of k][part][block of rows or columns][16][32]; the 16 are rows of A, or pairs of k of B."""
