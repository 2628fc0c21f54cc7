"""The server of exported models, which needs no TensorFlow: TensorFlow Serving's REST API, and batches of requests."""
