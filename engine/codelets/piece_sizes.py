"""How products in bfloat16 pieces are cut: known to those who choose them, too, without loading the compiler."""

from __future__ import annotations

BLOCK = 16  # rows of a matrix register, and float32 columns of one that sums
K_BLOCK = 512  # the most k at a time; a multiple of what a register has
ELEMENTS = 1 << 17  # of B, whose pieces, 768 kB, stay in the second-level cache while rows of A pass; or of A
MOST_COLUMNS = 1024
