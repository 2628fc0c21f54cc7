"""Passes on `while`: a flat state, without what is constant or unused, and work taken out of the turns."""
