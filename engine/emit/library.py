"""Generated codelets of this process: compiled once, cached on disk, looked up by their nests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path

from engine.emit.codelet import emit_codelet
from engine.emit.combiner import emit_combiner, emit_comparator
from engine.machine_code import keys
from engine.machine_code.llvm_thread import llvm_thread
from engine.machine_code.loading import load_objects
from engine.machine_code.objects import Compile, begin_object
from engine.machine_code.processor import lanes
from engine.program.nest import Combiner, Comparator, Nest
from engine.resource_limits import check_time

Generated = Nest | Combiner | Comparator
"""Sources of generated code: compute sets run it as a codelet, or call it."""

FOLDER = Path(__file__).parent
_LOCK = threading.Lock()
_ADDRESSES: dict[Generated, int] = {}
Listener = Callable[[int, int], None]


def name_of(nest: Hashable) -> str:
    """A name that equal nests (or comparators or combiners) share, and no others."""
    return "codelet_" + hashlib.sha256((keys.fingerprint(FOLDER) + repr(nest)).encode()).hexdigest()[:32]


def path_of(generated: Generated) -> Path:
    """The file of the object code on disk; its stem is the name."""
    return keys.folder("objects", FOLDER) / f"{name_of(generated)}.o"


def addresses_of(generated: Iterable[Generated], listener: Listener | None = None) -> dict[Generated, int]:
    """Compiles code that is new, and returns the address of each machine code, valid for the lifetime of the process.

    `listener(done, total)` is called as new code is compiled.
    """
    wanted = list(dict.fromkeys(generated))
    with _LOCK:
        missing = [each for each in wanted if each not in _ADDRESSES]
        paths = {each: path_of(each) for each in missing}
        if missing:
            pending: list[tuple[str, Compile]] = []
            with llvm_thread() as pool:
                for done, each in enumerate(missing):
                    check_time()
                    if listener is not None:
                        listener(done, len(missing))
                    name = paths[each].stem
                    pending.append((name, begin_object(paths[each], partial(prepared, each, name), pool)))
                objects = [(name, code()) for name, code in pending]
            code = load_objects(objects)
            _ADDRESSES.update({each: code[paths[each].stem] for each in missing})
        return {each: _ADDRESSES[each] for each in wanted}


def prepared(generated: Generated, name: str) -> Compile:
    """Writes the LLVM IR; the function returned compiles it to object code with the one symbol `name`."""
    from engine.machine_code.optimising import WRITTEN_NESTS, compile_text

    return partial(compile_text, _text(generated, name), WRITTEN_NESTS)


def _text(generated: Generated, name: str) -> str:
    """The LLVM IR of a module with the one function `name`."""
    match generated:
        case Combiner():
            return emit_combiner(generated, name, lanes())
        case Comparator():
            return emit_comparator(generated, name)
        case _:
            return emit_codelet(generated, name, lanes())
