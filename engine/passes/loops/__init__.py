"""Passes on `while`: a flat state, without constant or unused elements, and work moved out of the iterations."""
