"""From instructions to compute sets of vertices."""
