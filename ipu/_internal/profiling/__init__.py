"""Cost reports of programs on a chip: `ipu.profile` and the callback `ipu.ProfileReport`."""
