"""Data sets: the package of `tensorflow.python.ipu.data`."""
