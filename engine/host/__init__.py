"""This processor's way of computing a program: algorithms for its typed work, chosen by estimated time."""
