"""Host embeddings: tables in the host's memory, of which programs look rows up and update them."""
