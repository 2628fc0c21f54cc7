"""Custom operations: vertices of the user's own, expressions, and functions of the host."""
