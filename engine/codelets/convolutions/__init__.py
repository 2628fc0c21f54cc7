"""Convolutions that are no plain products: Winograd's, depthwise ones, few output features."""
