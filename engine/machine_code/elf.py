"""Links object code without LLVM, which a server lacks: ELF sections in memory, with their relocations applied."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.errors import InternalError
from engine.machine_code import relocations
from engine.machine_code.processor import ARM

SECTION, SYMBOL, RELOCATION = struct.Struct("<4xIQ8xQQIIQ8x"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
MACHINE = 183 if ARM else 62  # EM_AARCH64, EM_X86_64
SYMTAB, RELA, NOBITS, UNWIND = 2, 4, 8, 0x70000001  # types of sections
WRITE, ALLOC = 1, 2  # flags of sections
UNDEFINED, LOCAL = 0, 0  # a section's number, a symbol's binding
ALIGNMENT = 64

_symbols: dict[str, int] = {}
_memory: list[mmap.mmap] = []


class Section(NamedTuple):
    """The fields of a section header that linking reads."""

    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int

    @property
    def is_loaded(self) -> bool:
        """Whether the section is needed in memory; nothing unwinds a codelet."""
        return bool(self.flags & ALLOC and self.size and self.type != UNWIND)


class _Relocation(NamedTuple):
    """A relocation at an offset in memory, by a symbol's number."""

    offset: int
    symbol: int
    kind: int
    addend: int


@dataclass
class _Object:
    """An object file; `offsets` are the offsets of loaded sections in memory."""

    data: bytes
    sections: list[Section] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", self.data, 18)[0] != MACHINE:
            raise InternalError(f"Expected object code of machine {MACHINE}. Received: a file of {self.data[:20]!r}.")
        start, count = struct.unpack_from("<Q", self.data, 40)[0], struct.unpack_from("<H", self.data, 60)[0]
        self.sections = [Section(*SECTION.unpack_from(self.data, start + 64 * number)) for number in range(count)]

    def content(self, section: Section) -> bytes:
        return self.data[section.offset : section.offset + section.size]

    def text(self, table: Section, start: int) -> str:
        begin = table.offset + start
        return self.data[begin : self.data.index(b"\0", begin)].decode()

    def relocations(self) -> Iterator[_Relocation]:
        """The relocations of the loaded sections."""
        for table in (each for each in self.sections if each.type == RELA and each.info in self.offsets):
            for offset, info, addend in RELOCATION.iter_unpack(self.content(table)):
                yield _Relocation(self.offsets[table.info] + offset, info >> 32, info & 0xFFFFFFFF, addend)

    def symbols(self) -> Iterator[tuple[str, bool, int, int]]:
        """Name, whether other objects see it, section and offset of each symbol."""
        for table in (each for each in self.sections if each.type == SYMTAB):
            for name, info, _, section, value, _ in SYMBOL.iter_unpack(self.content(table)):
                yield self.text(self.sections[table.link], name), info >> 4 != LOCAL, section, value


def link(objects: list[bytes]) -> dict[str, int]:
    """Links objects in executable memory for the lifetime of the process; returns the addresses of their functions.

    They and all objects that are linked later can call these functions by name.
    """
    files = [_Object(data) for data in objects]
    size = 0
    for file in files:
        for number, section in enumerate(file.sections):
            if section.is_loaded:
                if section.flags & WRITE:
                    raise InternalError(
                        "Expected object code without variables. Received: a section that is written to."
                    )
                size += -size % max(section.alignment, ALIGNMENT)
                file.offsets[number] = size
                size += section.size
    free = size + -size % relocations.JUMP_BYTES
    jumps = sum(relocations.may_jump(each.kind) for file in files for each in file.relocations())
    memory = mmap.mmap(-1, max(free + relocations.JUMP_BYTES * jumps, 1))
    _memory.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for file in files:
        for number, offset in file.offsets.items():
            if file.sections[number].type != NOBITS:
                memory[offset : offset + file.sections[number].size] = file.content(file.sections[number])
    found = {
        name: base + file.offsets[section] + value
        for file in files
        for name, is_seen, section, value in file.symbols()
        if is_seen and section in file.offsets
    }
    _symbols.update(found)
    place = relocations.Place(memory, base, free)
    for file in files:
        addresses = [
            _external(name) if section == UNDEFINED else base + file.offsets.get(section, 0) + value
            for name, _, section, value in file.symbols()
        ]
        for each in file.relocations():
            place.relocate(each.kind, each.offset, addresses[each.symbol] + each.addend)
    if ctypes.CDLL(None, use_errno=True).mprotect(
        ctypes.c_void_p(base), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC
    ):
        raise InternalError(f"Expected memory that can be executed. Received: error {ctypes.get_errno()} of mprotect.")
    if ARM:  # whose caches of instructions do not see what was stored
        ctypes.CDLL("libgcc_s.so.1")["__clear_cache"](ctypes.c_void_p(base), ctypes.c_void_p(base + len(memory)))
    return found


def _external(name: str) -> int:
    """The address of a function that object code calls: another object's, or the C library's."""
    if not name:
        return 0
    if name not in _symbols:
        for library in (None, "libm.so.6"):
            function = getattr(ctypes.CDLL(library), name, None)
            if function is not None:
                _symbols[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
                break
        else:
            raise InternalError(f"Expected object code that calls the C library alone. Received: a call of {name}.")
    return _symbols[name]
