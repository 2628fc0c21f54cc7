"""`python -m ipu.check`: reads programs, without running them, for what works here and what needs a change."""
