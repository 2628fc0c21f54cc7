"""Sizes of Winograd's convolutions, in a file that passes read without loading the compiler."""

from __future__ import annotations

from engine.machine_code.processor import lanes

OUTPUTS = 2  # along each side of a tile
WIDE_OUTPUTS = 4  # along each side of a larger tile
WINDOW = 3
TAPS = WINDOW * WINDOW
KERNEL_BLOCK = 16  # input features of a unit of the kernel's transform, which has all of a panel's output features
GRADIENT_BLOCK = 16  # input features of a unit of the kernel's gradient
ROW_WORDS = 2  # of a row in a table of rows: address, and bytes between columns
PADDING = 64  # bytes between arrays of scratch: without it, the arrays of all positions would share cache sets
# Tuned on two cores of an EPYC with AVX-512 (32 KiB first-level, 1 MiB second-level cache), November 2026.
BLOCK_BYTES = 3 << 16  # transformed inputs and products of the tiles multiplied at a time
LEAST_TILES = 24  # multiplied at a time, in any cache: the transformed kernel is read once for each block of tiles
MOST_TILES = 48
LEAST_GRADIENT_TILES = 36  # likewise for the kernel's gradient: its sums are read and written once for each block


def whole_vectors(features: int) -> int:
    """Features rounded up to whole vectors of this processor."""
    return -(-features // lanes()) * lanes()


def side(tile: int) -> int:
    """Positions along each side of a transformed tile that has `tile` outputs along each side."""
    return tile + WINDOW - 1


def positions(tile: int) -> int:
    """Positions of a transformed tile."""
    return side(tile) ** 2


def block_tiles(inputs: int, outputs: int, tile: int, least: int = LEAST_TILES) -> int:
    """Number of tiles that are transformed and multiplied at a time, for `inputs` and `outputs` features."""
    size = 4 * positions(tile) * (whole_vectors(inputs) + whole_vectors(outputs))
    return max(least, min(MOST_TILES, BLOCK_BYTES // size // 12 * 12))


def position_bytes(inputs: int, outputs: int) -> int:
    """Bytes of one position of a transformed kernel."""
    return 4 * inputs * whole_vectors(outputs) + PADDING
