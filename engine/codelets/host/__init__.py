"""The host's side of a step: queues, rows of host memory, calls and tables."""
