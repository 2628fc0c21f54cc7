"""Convolutions on this processor: one file for each way, and the choice among them."""
