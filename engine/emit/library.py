"""Generated codelets of this process: compiled once, kept on disk, found by what they compute."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from engine.emit.codelet import emit_codelet
from engine.emit.jit import begin_object, generator, lanes_of_f32, load_objects
from engine.emit.nest import Nest
from engine.llvm_thread import llvm_thread

_LOCK = threading.Lock()
_ADDRESSES: dict[Nest, int] = {}
Listener = Callable[[int, int], None]


def name_of(nest: Hashable) -> str:
    """A name that equal nests (or equal comparators or combiners) share and no others."""
    return "codelet_" + hashlib.sha256((generator() + repr(nest)).encode()).hexdigest()[:32]


def addresses_of(nests: Iterable[Nest], listener: Listener | None = None) -> dict[Nest, int]:
    """The address of each nest's machine code; `listener(done, total)` is called as new ones are made."""
    wanted = list(dict.fromkeys(nests))
    with _LOCK:
        missing = [nest for nest in wanted if nest not in _ADDRESSES]
        names = {nest: name_of(nest) for nest in missing}
        if missing:
            pending = []
            with llvm_thread() as pool:
                for done, nest in enumerate(missing):
                    if listener is not None:
                        listener(done, len(missing))
                    text = partial(emit_codelet, nest, names[nest], lanes_of_f32())
                    pending.append((names[nest], begin_object(names[nest], text, pool)))
                objects = [(name, code()) for name, code in pending]
            code = load_objects(objects)
            _ADDRESSES.update({nest: code[names[nest]] for nest in missing})
        return {nest: _ADDRESSES[nest] for nest in wanted}
