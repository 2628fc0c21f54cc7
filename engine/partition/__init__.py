"""Cuts a training step at its gradients, so that parts of it run more than once, or elsewhere."""
