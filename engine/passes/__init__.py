"""Passes: named functions from a module to a better one that computes the same."""
