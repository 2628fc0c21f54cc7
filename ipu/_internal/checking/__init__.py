"""`python -m ipu.check`: reads programs without running them, and lists names that work here and names to change."""
