"""Generated codelets: elementwise operations and reductions written as LLVM IR."""

from engine.emit import (  # noqa: F401  (they register their emitters)
    arithmetic,
    complex,
    conversion,
    rounding,
    transcendental,
)
from engine.emit.registry import COMPLEX_EMITTERS, EMITTERS, emitter_of
from engine.ir.opcodes import opcodes_that, require_registered
from engine.ir.shape import COMPLEX

require_registered(EMITTERS, "emitter", opcodes_that(lambda row: row.execution == "emitter"))
require_registered(
    COMPLEX_EMITTERS,
    "emitter for complex types",
    opcodes_that(lambda row: row.execution == "emitter" and COMPLEX <= (row.operand_types or COMPLEX)),
)

__all__ = ["EMITTERS", "emitter_of"]
