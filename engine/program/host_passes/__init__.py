"""Passes over programs that are the host's alone: the program that the device model accounts for is without them."""
