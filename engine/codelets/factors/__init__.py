"""Factors of matrices and solutions of systems."""
