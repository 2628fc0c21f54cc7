"""Exports for serving, their functions under IPUStrategy.run, and the server."""
