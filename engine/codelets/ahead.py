"""A helper process that compiles the codelets shared by all programs while a machine's first program is built.

The helper holds a lock as long as it lives, and goes through a list from its start. Processes that need objects of the
list compile them from its end, and load the objects that the helper has stored by then. No process waits for the
helper.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.cache_directory import cache_directory, load, store
from engine.machine_code.helper_process import is_locked, locked, may_start, spawn
from engine.private_files import fault_of_folder, make_private

USUAL = "engine.codelets.convolutions.usual_images"
"""The module whose codelets are compiled ahead although programs do not import it themselves."""
MODULES = (
    *("engine.runtime.executor", "engine.codelets.products.contract_f32", "engine.codelets.threads.thread_pool"),
    *("engine.codelets.chain", "engine.codelets.host.rows", "engine.codelets.threads.waiting"),
    *("engine.codelets.transpose", "engine.codelets.rows.row_sums", USUAL),
    *(
        "engine.codelets.rows.gather",
        "engine.codelets.rows.gather_rows",
        "engine.codelets.rows.scatter",
        "engine.codelets.rows.scatter_rows",
    ),
    *(
        "engine.codelets.convolutions.winograd",
        "engine.codelets.convolutions.winograd_gradient",
        "engine.codelets.rows.dynamic_slice",
    ),
    *(
        "engine.codelets.random",
        "engine.codelets.rows.touched_rows",
        "engine.codelets.rows.reduced_rows",
        "engine.codelets.per_iteration",
    ),
    *(
        "engine.codelets.value_check",
        "engine.codelets.host.queues",
        "engine.codelets.host.host_call",
        "engine.codelets.language.exceptions",
    ),
    *("engine.codelets.sort", "engine.codelets.host.host_table"),
    *("engine.codelets.rows.edge_sums", "engine.codelets.rows.edge_products"),
)
"""Modules whose named codelets depend on no model, or are part of most models of images, in the order in which programs
need them."""
NEEDED_FIRST = 6
"""Number of modules whose codelets every program with a product needs: they are compiled first."""
MATRIX_REGISTERS = "engine.codelets.products.contract_bf16x3"
MODULE = "engine.runtime.compile_ahead"
"""The helper's main module."""
ATTEMPTS = 3
"""Number of helpers that may fail before no more are started."""
PROCESSOR = (b"vendor_id", b"cpu family", b"model", b"flags", b"Features", b"CPU part", b"CPU implementer")
"""Lines of /proc/cpuinfo that name the processor."""
CPUINFO_BYTES = 8192
"""Bytes of /proc/cpuinfo to read: more than the lines of one processor."""
CHOICES = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "SOFTWARE_IPU_AMX", "SOFTWARE_IPU_CACHE_BYTES")
"""Environment variables on which code depends."""

_asked = False
"""Whether this process has started a helper, or has found that none is needed."""
_lock: Path | None = None
"""The lock of the helper that may compile codelets which this process needs."""


def start() -> None:
    """Starts a helper, unless this machine has these objects, another helper runs, or the user wants none.

    Only the first call of a process does so. Takes a few milliseconds. Raises ConfigurationError for an invalid switch.
    """
    global _asked, _lock
    if _asked:
        return
    wanted = may_start()
    _asked = True
    if not wanted:
        return
    with contextlib.suppress(OSError, ImportError, ValueError, RuntimeError):  # the last without a home directory
        key = _key()
        folder = cache_directory(f"ahead-{key}")
        if not key or load(made_in(folder)) is not None:
            return
        for each in (folder.parent, folder):
            make_private(each)
            if fault_of_folder(each) is not None:
                return
        with locked(folder / "lock") as handle:
            if handle is not None:
                if os.fstat(handle).st_size >= ATTEMPTS:
                    return
                os.write(handle, b".")
                spawn(MODULE, str(folder), handle)
        _lock = folder / "lock"


def made_in(folder: Path) -> Path:
    """The file that says that all objects have been stored."""
    return folder / "made"


def is_running() -> bool:
    """Whether a helper compiles for this process."""
    global _lock
    if _lock is not None and not is_locked(_lock):
        _lock = None
    return _lock is not None


def place_of(codelet: Any) -> int | None:
    """The position of a codelet in the helper's list; None if no named codelet in the list has the same file."""
    import_module(USUAL)
    modules = (sys.modules.get(name) for name in (*MODULES, MATRIX_REGISTERS))
    listed = (each for module in modules if module is not None for each in vars(module).values())

    def same(each: Any) -> bool:
        """Whether both have one file: one kind of codelet may be several objects."""
        return each is codelet or (each.name == codelet.name and each.path == codelet.path)

    return next((place for place, each in enumerate(listed) if isinstance(each, type(codelet)) and same(each)), None)


def keep(folder: Path | None = None) -> None:
    """Notes, in the folder of this processor and release if none is given, that all objects have been stored."""
    if folder is None and (key := _key()):
        folder = cache_directory(f"ahead-{key}")
    if folder is not None:
        store(made_in(folder), b"")


def _key() -> str:
    """Hashes what the objects depend on, by files' times, without reading files or loading LLVM; empty without Numba.
    If it misses a change, processes compile what they need themselves.
    """
    compilers = [find_spec(name) for name in ("numba", "llvmlite")]
    files = [Path(each.origin) for each in compilers if each is not None and each.origin]
    if len(files) < len(compilers):
        return ""
    engine = Path(__file__).parent.parent
    for name in ("codelets", "machine_code", "runtime"):
        files += sorted((engine / name).rglob("*.py"))
    chosen = [os.environ.get(name) for name in CHOICES]
    found = hashlib.sha256(repr((sys.prefix, platform.python_version(), chosen)).encode())
    found.update(repr([(str(file), file.stat().st_mtime_ns) for file in files]).encode())
    with contextlib.suppress(OSError), open("/proc/cpuinfo", "rb") as file:
        lines = file.read(CPUINFO_BYTES).split(b"\n\n")[0].splitlines()
        found.update(b"".join(line for line in lines if line.startswith(PROCESSOR)))
    return found.hexdigest()[:16]
