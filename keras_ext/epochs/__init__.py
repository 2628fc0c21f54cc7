"""Where an epoch's batches come from, and how they become feeds."""
