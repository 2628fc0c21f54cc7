"""Lowering of instructions to compute sets of vertices."""
