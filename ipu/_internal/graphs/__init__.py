"""Programs of TensorFlow 1: `ipu_compiler.compile` and queues in a tf.Graph, executed by a session."""
