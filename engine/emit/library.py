"""Codelets of this process that are generated: one for equal nests, combiners or comparators."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cache, partial
from pathlib import Path

from engine.codelets.language.build import GivenCode, MachineCode
from engine.machine_code import keys
from engine.machine_code.objects import Compile
from engine.machine_code.processor import lanes
from engine.program.nest import Combiner, Comparator, Nest

Generated = Nest | Combiner | Comparator
"""Sources of generated code: compute sets run it as a codelet, or call it."""

FOLDER = Path(__file__).parent


def name_of(nest: Hashable) -> str:
    """A name that equal nests (or comparators or combiners) share, and no others."""
    return "codelet_" + hashlib.sha256(repr(nest).encode()).hexdigest()[:32]


@cache
def generated_codelet(generated: Generated) -> MachineCode:
    """The codelet of a source."""
    return GivenCode(keys.folder("objects", FOLDER) / f"{name_of(generated)}.o", prepare=partial(prepared, generated))


def prepared(generated: Generated, name: str) -> Compile:
    """Writes the LLVM IR; the function returned compiles it to object code with the one symbol `name`."""
    from engine.emit.contraction import contracted  # like the emitter, only to compile
    from engine.emit.interleaving import vectors_alternate
    from engine.machine_code.optimising import IN_ORDER, WRITTEN_OUT, compile_text

    in_order = isinstance(generated, Nest) and vectors_alternate(contracted(generated))
    return partial(compile_text, _text(generated, name), IN_ORDER if in_order else WRITTEN_OUT)


def _text(generated: Generated, name: str) -> str:
    """The LLVM IR of a module with the one function `name`."""
    from engine.emit.codelet import emit_codelet
    from engine.emit.combiner import emit_combiner, emit_comparator

    match generated:
        case Combiner():
            return emit_combiner(generated, name, lanes())
        case Comparator():
            return emit_comparator(generated, name)
        case _:
            return emit_codelet(generated, name, lanes())
