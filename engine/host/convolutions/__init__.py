"""Convolutions on this processor: a file for each algorithm, and the choice among them."""
