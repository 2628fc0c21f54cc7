"""Relocations in object code of the large code model, for x86-64 and 64-bit ARM: the ELF supplements of their ABIs."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

from engine.errors import InternalError
from engine.machine_code.processor import ARM

WORDS = {257: (8, False), 260: (8, True), 261: (4, True)} if ARM else {1: (8, False), 24: (8, True)}
"""Bytes, and whether the distance is meant: R_AARCH64_ABS64, _PREL64 and _PREL32, or R_X86_64_64 and _PC64."""
MOVES = {263: 0, 264: 0, 265: 1, 266: 1, 267: 2, 268: 2, 269: 3} if ARM else {}
"""R_AARCH64_MOVW_UABS_G0 to _G3, with and without _NC: a move of 16 bits of an address, and which ones."""
BRANCHES = {282, 283} if ARM else set()
"""R_AARCH64_JUMP26 and _CALL26: branches to 26 bits of words."""
REACH = 1 << 27
"""Bytes that such a branch reaches in either direction."""
JUMP = struct.pack("<II", 0x58000050, 0xD61F0200)
"""ldr x16, 8 bytes on; br x16: the address follows. Functions may change x16."""
JUMP_BYTES = len(JUMP) + 8


def may_jump(kind: int) -> bool:
    """Whether a relocation may need JUMP_BYTES of memory for a jump."""
    return kind in BRANCHES


@dataclass
class Place:
    """Memory for code at address `base`, with space for jumps from offset `free` on."""

    memory: mmap.mmap
    base: int
    free: int

    def relocate(self, kind: int, offset: int, value: int) -> None:
        """Applies a relocation to the bytes at an offset; `value` is the symbol's address plus the addend."""
        if kind in WORDS:
            size, is_distance = WORDS[kind]
            number = value - (self.base + offset if is_distance else 0)
            self.memory[offset : offset + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
        elif kind in MOVES:
            self._set_bits(offset, 5, 16, value >> 16 * MOVES[kind])
        elif kind in BRANCHES:
            if not -REACH <= value - (self.base + offset) < REACH:
                value = self._jump(value)
            self._set_bits(offset, 0, 26, (value - (self.base + offset)) >> 2)
        else:
            raise InternalError(f"Expected relocations of the large code model. Received: number {kind}.")

    def _jump(self, target: int) -> int:
        """The address of a new jump to `target`."""
        start, self.free = self.free, self.free + JUMP_BYTES
        self.memory[start : self.free] = JUMP + struct.pack("<Q", target)
        return self.base + start

    def _set_bits(self, offset: int, first: int, count: int, number: int) -> None:
        """Replaces `count` bits of an instruction, from bit `first` on."""
        mask = (1 << count) - 1
        instruction = int.from_bytes(self.memory[offset : offset + 4], "little") & ~(mask << first)
        self.memory[offset : offset + 4] = (instruction | (number & mask) << first).to_bytes(4, "little")
