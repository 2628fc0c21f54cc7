"""Object code of the installation or of the cache on disk, compiled and stored there if it is missing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from engine.cache_directory import load, store
from engine.machine_code import given_objects, installed_objects

Compile = Callable[[], bytes]
"""Compiles, or waits for, an object."""
Prepare = Callable[[], Compile]
"""Writes LLVM IR, and returns the function that compiles it."""


def begin_object(path: Path, prepare: Prepare, pool: Executor) -> Compile:
    """Returns a function that waits for the object code stored under `path`.

    If there is none, `prepare` writes the LLVM IR at once; the function it returns compiles that in a thread of
    `pool`.
    """
    kept = given_objects.find(path) or installed_objects.find(path) or load(path)
    if kept is not None:
        return partial(given_objects.record, path, kept)
    if not given_objects.has_compiler():
        raise given_objects.missing(path)
    compile = prepare()

    def compile_and_keep() -> bytes:
        code = load(path)  # another process may have stored it since
        if code is None:
            code = compile()
            store(path, code)
        return given_objects.record(path, code)

    return pool.submit(compile_and_keep).result
