"""The configuration tree and what becomes of it; ipu.config offers the public names."""
