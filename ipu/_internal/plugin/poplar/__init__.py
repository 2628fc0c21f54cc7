"""The plugin's name in TensorFlow's tree."""
