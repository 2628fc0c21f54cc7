"""Pipelining of Keras models: assignment of layers to stages, options, and schedules."""
