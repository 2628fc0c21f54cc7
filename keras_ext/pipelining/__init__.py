"""Pipelining of Keras models: which layer is in which stage, with which options, and how stages are scheduled."""
