"""What both faces of pipelining share, the operator and Keras: options, their checks, counts of micro-batches."""
