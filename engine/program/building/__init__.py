"""Builders of compute sets, for the lowering of instructions and for the host's ways of computing them."""
