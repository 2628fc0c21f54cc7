"""Operators as functions of tensors: TensorFlow operations that trace into any program."""
