"""Estimates of a program on the chip: memory, cycles, and how far to trust them."""
