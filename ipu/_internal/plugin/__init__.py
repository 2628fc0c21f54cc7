"""`tensorflow.compiler.plugin`: where older programs find the operation and the message of event traces."""
