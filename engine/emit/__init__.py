"""Generated codelets: elementwise operations and reductions written as LLVM IR."""

from engine.emit import arithmetic, conversion, transcendental  # noqa: F401  (they register their emitters)
from engine.emit.registry import EMITTERS

__all__ = ["EMITTERS"]
