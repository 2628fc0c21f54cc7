"""The server of exported models, which needs no TensorFlow: TensorFlow Serving's REST API, and batches of requests."""

from engine.runtime.quiet import quiet_from_the_start

quiet_from_the_start()
