"""Reports on what a chip would do: `ipu.profile` and the callback `ipu.ProfileReport`, loaded when they are used."""

from __future__ import annotations

from ipu._names.namespace import public_names

_HOMES = {"profile": "ipu.profiling.making", "ProfileReport": "ipu.profiling.callback"}
__all__ = ["ProfileReport", "profile"]

# What makes reports loads the engine's compiler.
__getattr__, __dir__ = public_names(__name__, __all__, _HOMES)
