"""The configuration tree and its validation; ipu.config offers the public names."""
