"""The rewriting rules, one file for each family of instructions; each file has one set called RULES."""
