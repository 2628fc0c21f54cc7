"""Generated codelets: elementwise operations and reductions written as LLVM IR."""

from engine.emit import arithmetic, complex, conversion, transcendental  # noqa: F401  (they register their emitters)
from engine.emit.registry import EMITTERS, emitter_of

__all__ = ["EMITTERS", "emitter_of"]
