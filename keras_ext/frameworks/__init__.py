"""The parts that differ between Keras 3 and tf_keras: files named after either, and those they share."""
