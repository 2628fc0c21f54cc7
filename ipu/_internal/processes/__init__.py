"""Several processes that train one model: transports between them, and the launcher."""
