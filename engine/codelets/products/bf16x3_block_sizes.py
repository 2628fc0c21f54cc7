"""Block sizes of products by the bf16x3 split, in a file that passes read without loading the compiler."""

from __future__ import annotations

# Tuned on two cores of a Xeon with AVX-512 and AMX (48 KiB first-level, 2 MiB second-level cache), November 2026;
# rows, columns and k are counts.
BLOCK = 16  # rows of a matrix register, and float32 columns of a matrix register that holds sums
K_BLOCK = 512  # the most k at a time; a multiple of a register's k
ELEMENTS = 1 << 17  # of B, whose parts (768 kB) stay in the second-level cache while rows of A stream; likewise of A
MOST_COLUMNS = 1024  # of B split at a time
