"""Recurrences over the time steps of sequences, and the layers of rnn_ops with their variables."""
