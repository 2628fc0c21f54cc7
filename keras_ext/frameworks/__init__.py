"""One file for each Keras, all with the same functions."""
