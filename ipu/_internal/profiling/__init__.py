"""Reports on what a chip would do: `ipu.profile` and the callback `ipu.ProfileReport`."""
