"""Pipelining for both `pipeline()` and Keras: options, their checks, counts of micro-batches."""
