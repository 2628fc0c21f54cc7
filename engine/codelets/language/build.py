"""Codelets: functions in a subset of Python, compiled by LLVM on first use, cached on disk, called by address."""

from __future__ import annotations

import hashlib
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from engine.codelets.language.intrinsic import Inner
from engine.machine_code import given_objects, half_conversions, keys, sources
from engine.machine_code.abi import CODELET_TYPE
from engine.machine_code.elf import link
from engine.machine_code.llvm_thread import llvm_thread
from engine.machine_code.objects import Compile, Prepare, begin_object
from engine.machine_code.processor import converts_half

FOLDER = Path(__file__).parent.parent


def path_of(function: Callable[..., Any], name: str) -> Path:
    """The file of a codelet's object code; its folder depends on all of `engine/codelets`, as codelets call others."""
    digest = hashlib.sha256(_sources(inspect.getfile(function)))
    digest.update(repr(identity(function)).encode())
    return keys.folder("codelets", FOLDER) / f"{name}-{digest.hexdigest()[:32]}.o"


def path_of_library(name: str) -> Path:
    """The file of the object code of a library, which files of `engine/codelets` write."""
    return keys.folder("codelets", FOLDER) / f"{name}.o"


@cache
def _sources(file: str) -> bytes:
    """A hash of a file outside `engine/codelets` and of its imports; empty inside, which the folder's name covers."""
    path = Path(file)
    return b"" if path.is_relative_to(FOLDER) else sources.digest_at(path)


def identity(value: Any) -> Any:
    """The identity of a function and of the values in its closure, the same in every process."""
    function = getattr(value, "function", value)
    if inspect.isfunction(function):
        code = function.__code__
        cells = tuple(identity(cell.cell_contents) for cell in function.__closure__ or ())
        # Not the bytecode, in which releases of Python differ, unless a line has several functions.
        bytecode = code.co_code.hex() if function.__name__ == "<lambda>" else ""
        return function.__module__, function.__qualname__, code.co_firstlineno, bytecode, cells
    if isinstance(value, tuple | list):
        return tuple(identity(each) for each in value)
    return repr(value)


# One codelet must not compile twice.
_lock = threading.RLock()
_listeners: list[Callable[[str], None]] = []
Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)` before object number `done` is compiled; those on the disk are loaded."""
_linked: set[str] = set()  # names of the libraries of this process


class Library(NamedTuple):
    """Functions that several codelets call, compiled once: `text` returns their LLVM IR, written out."""

    name: str
    text: Callable[[], str]


HALF_CONVERSIONS = Library("half_conversions", lambda: half_conversions.TEXT)


class MachineCode(ABC):
    """Machine code of a function `void(int64 parameters, int64 lo, int64 hi, int64 scratch)` on units lo <= unit < hi.

    Nothing is compiled before `address` is read. Calling the object calls the compiled code without the GIL.
    `libraries` define functions that it calls by name.
    """

    def __init__(self, name: str, libraries: tuple[Library, ...]) -> None:
        self.name, self.libraries = name, libraries
        self._address: int | None = None

    @property
    def is_made(self) -> bool:
        """Whether this process has loaded the machine code."""
        return self._address is not None

    @property
    def address(self) -> int:
        """The address of the compiled code, valid for the lifetime of the process; the first read compiles it."""
        if self._address is None:
            make([self])
        assert self._address is not None
        return self._address

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file of the object code on disk, or its name as of `given_objects.name_of`."""

    @abstractmethod
    def prepared(self, symbol: str) -> Callable[[], bytes]:
        """Writes the LLVM IR; the function returned compiles it to object code with the one symbol `symbol`."""

    @cached_property
    def _callable(self) -> Callable[..., None]:
        return CODELET_TYPE(self.address)

    def __call__(self, parameters: int, lo: int, hi: int, scratch: int) -> None:
        self._callable(parameters, lo, hi, scratch)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Codelet(MachineCode):
    """A function in the language of codelets. With `in_vectors` its loops are vectorised by hand, so LLVM does not."""

    def __init__(
        self,
        function: Callable[[int, int, int, int], None],
        name: str | None = None,
        libraries: tuple[Library, ...] = (),
        *,
        in_vectors: bool = False,
    ) -> None:
        super().__init__(name or function.__name__, libraries)
        self.function, self.in_vectors = function, in_vectors

    @property
    def path(self) -> Path:
        return path_of(self.function, self.name)

    def prepared(self, symbol: str) -> Callable[[], bytes]:
        for listener in list(_listeners):
            listener(self.name)
        from engine.codelets.language.linking import object_of
        from engine.codelets.language.statements import ir_of

        return partial(object_of, *ir_of(self.function, self.in_vectors), symbol, self.in_vectors)


class GivenCode(MachineCode):
    """Code that is not of a Python function: `prepare(symbol)` is as `prepared`. Without it only the path is known."""

    def __init__(
        self,
        path: Path,
        libraries: tuple[Library, ...] = (),
        prepare: Callable[[str], Callable[[], bytes]] | None = None,
    ) -> None:
        super().__init__(path.stem, libraries)
        self._path, self._prepare = path, prepare

    @property
    def path(self) -> Path:
        return self._path

    def prepared(self, symbol: str) -> Callable[[], bytes]:
        if self._prepare is None:
            raise given_objects.missing(self._path)
        return self._prepare(symbol)


def codelet(function: Callable[[int, int, int, int], None]) -> Codelet:
    """Decorator: a Codelet of a function in the language of codelets."""
    return Codelet(function)


def inner(function: Callable[..., Any]) -> Any:
    """Decorator of a function that codelets call; compiled into its callers."""
    return Inner(function)


@contextmanager
def building(listener: Callable[[str], None]) -> Iterator[None]:
    """Calls `listener(name)` before a codelet that the disk cache lacks is compiled, while the context is open."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def make(codelets: Iterable[MachineCode], progress: Progress | None = None) -> None:
    """Compiles codelets that this process does not have, or loads them from the disk cache.

    LLVM works on one codelet, without the GIL, while the IR of the next is written.
    """
    with _lock:
        missing = list(dict.fromkeys(each for each in codelets if not each.is_made))
        if not missing:
            return
        libraries = [each for each in _libraries(missing) if each.name not in _linked]
        addresses = link(list(_compiled_objects(_wanted(missing, libraries), progress).values()))
        _linked.update(each.name for each in libraries)
        for each in missing:
            each._address = addresses[each.path.stem]


def objects_of(codelets: Iterable[MachineCode]) -> dict[str, bytes]:
    """Object code of codelets and of their libraries by its name in the cache; nothing is loaded into this process."""
    found = list(codelets)
    return {path.name: code for path, code in _compiled_objects(_wanted(found, _libraries(found))).items()}


def _compiled_objects(wanted: dict[Path, Prepare], progress: Progress | None = None) -> dict[Path, bytes]:
    """The object code for each path."""
    begun = {}
    with llvm_thread() as pool:
        for number, (path, prepare) in enumerate(wanted.items()):
            if progress is not None:
                prepare = partial(_told, prepare, progress, number, len(wanted))
            begun[path] = begin_object(path, prepare, pool)
        return {path: compiled() for path, compiled in begun.items()}


def _told(prepare: Prepare, progress: Progress, done: int, total: int) -> Compile:
    progress("codelets", done, total)
    return prepare()


def _libraries(codelets: list[MachineCode]) -> list[Library]:
    always = [] if converts_half() else [HALF_CONVERSIONS]
    return list({each.name: each for each in chain(always, *(codelet.libraries for codelet in codelets))}.values())


def _wanted(codelets: list[MachineCode], libraries: list[Library]) -> dict[Path, Prepare]:
    """The functions that prepare the object code of libraries and codelets, by its path in the cache."""
    wanted: dict[Path, Prepare] = {path_of_library(each.name): partial(_compiled, each) for each in libraries}
    paths = ((each, each.path) for each in codelets)
    return wanted | {path: partial(each.prepared, path.stem) for each, path in paths}


def _compiled(library: Library) -> Callable[[], bytes]:
    """Returns the function that compiles a library from LLVM IR, which needs no frontend."""
    from engine.machine_code.optimising import WRITTEN_OUT, compile_text

    return lambda: compile_text(library.text(), WRITTEN_OUT)
