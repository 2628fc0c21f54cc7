"""Object code from the cache on disk, or made and put there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from engine.cache_directory import load, store
from engine.machine_code.llvm_thread import llvm_thread

Compile = Callable[[], bytes]


def begin_object(path: Path, prepare: Callable[[], Compile], pool: Executor) -> Compile:
    """Gives the object code that is kept under `path`, once it is there.

    Of code that is not on disk, `prepare` writes the LLVM IR at once, and what it returns compiles it in a thread of
    `pool`.
    """
    kept = load(path)
    if kept is not None:
        return lambda: kept
    compile = prepare()

    def compile_and_keep() -> bytes:
        code = compile()
        store(path, code)
        return code

    return pool.submit(compile_and_keep).result


def object_at(path: Path, prepare: Callable[[], Compile]) -> bytes:
    """The object code, when it is there."""
    with llvm_thread() as pool:
        return begin_object(path, prepare, pool)()
