"""LLVM IR text to machine code in memory, with a cache of objects on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding

from engine import sources
from engine.cache_directory import cache_directory, load, store
from engine.codelets.processor import converts_halves, features_text, target
from engine.emit import half_conversions
from engine.llvm_thread import llvm_thread


@cache
def host() -> tuple[str, str]:
    """The CPU's name and feature string, as LLVM knows them: the host's, or what NUMBA_CPU_NAME and
    NUMBA_CPU_FEATURES say, which steer codelets too."""
    return target()[0], features_text()


@cache
def lanes_of_f32() -> int:
    """The f32 lanes of the widest vector register of that CPU: 16, 8 or 4."""
    features = set(host()[1].split(","))
    if "+avx512f" in features and "+avx512bw" in features and "+avx512vl" in features:
        return 16
    return 8 if {"+avx2", "+fma"} <= features else 4


@cache
def generator() -> str:
    """A hash of everything but what it computes that a function's code depends on: sources, LLVM, processor."""
    digest = hashlib.sha256(repr((host(), binding.llvm_version_info, llvmlite.__version__)).encode())
    digest.update(sources.digest(Path(__file__).parent))
    return digest.hexdigest()


@cache
def _initialise() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def _target_machine() -> Any:
    _initialise()
    name, features = host()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=2, codemodel="jitdefault", jit=True)


@cache
def _compiling_machine() -> Any:
    return _target_machine()


def _optimised_object(text: str) -> bytes:
    machine = _compiling_machine()
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    # Loops are vectorised by hand already: the vectorisers would only cost compile time.
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


def compile_object(name: str, text: Callable[[], str]) -> tuple[str, bytes]:
    """The object code of the function `name`, from the cache on disk or else from its LLVM IR text."""
    with llvm_thread() as pool:
        return name, begin_object(name, text, pool)()


def begin_object(name: str, text: Callable[[], str], pool: Executor) -> Callable[[], bytes]:
    """The same, but LLVM works in a thread of `pool`, and what is returned gives the code when it is there."""
    path = cache_directory(f"objects-{generator()[:16]}") / f"{name}.o"
    kept = load(path)
    if kept is not None:
        return lambda: kept
    written = text()

    def compile_and_keep() -> bytes:
        code = _optimised_object(written)
        store(path, code)
        return code

    return pool.submit(compile_and_keep).result


_ENGINES: list[Any] = []


def load_objects(objects: list[tuple[str, bytes]]) -> dict[str, int]:
    """Puts object code into executable memory, for the life of the process; the address of each function."""
    if not converts_halves():
        _provide_half_conversions()
    return _loaded(objects)


@cache
def _provide_half_conversions() -> None:
    """Makes the functions known that LLVM calls to convert halves."""
    _, code = compile_object("half_conversions", lambda: half_conversions.TEXT)
    names = half_conversions.WIDEN, half_conversions.NARROW
    for name, address in _loaded([("", code)], names).items():
        binding.add_symbol(name, address)


def _loaded(objects: list[tuple[str, bytes]], names: Sequence[str] = ()) -> dict[str, int]:
    """The addresses of functions in these objects: of those named, or of the one that each object is named for."""
    machine = _target_machine()
    empty = binding.parse_assembly("")
    empty.triple = machine.triple
    engine = binding.create_mcjit_compiler(empty, machine)
    for _, code in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return {name: engine.get_function_address(name) for name in names or [name for name, _ in objects]}
