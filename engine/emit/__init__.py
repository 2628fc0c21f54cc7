"""Generated codelets: elementwise operations and reductions written as LLVM IR."""

from engine.emit import (  # noqa: F401  (they register their emitters)
    arithmetic,
    complex,
    conversion,
    rounding,
    transcendental,
)
from engine.emit.registry import EMITTERS, emitter_of

__all__ = ["EMITTERS", "emitter_of"]
