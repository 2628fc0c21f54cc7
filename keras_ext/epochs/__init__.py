"""Sources of an epoch's batches, and their conversion to feeds."""
