"""Generated codelets: elementwise operations and reductions written as LLVM IR."""

from engine.emit import (  # noqa: F401  (they register their emitters)
    arithmetic,
    complex,
    conversion,
    rounding,
    transcendental,
)
from engine.emit.registry import COMPLEX_EMITTERS, EMITTERS
from engine.ir.opcodes import COMPLEX_ELEMENTWISE, ELEMENTWISE, require_registered

require_registered(EMITTERS, "emitter", ELEMENTWISE)
require_registered(COMPLEX_EMITTERS, "emitter for complex types", COMPLEX_ELEMENTWISE)

__all__ = ["EMITTERS"]
