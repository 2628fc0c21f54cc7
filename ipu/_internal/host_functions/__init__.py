"""Functions of the host that traced functions call: tf.py_function, tf.numpy_function, tf.print, and scopes outside."""
