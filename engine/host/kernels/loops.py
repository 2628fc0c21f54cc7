"""Parameter blocks of fused loops, whose nests are their codelets."""

from __future__ import annotations

import numpy as np

from engine.host.encoded import Encoded, Relocation
from engine.program.work.fused_loop import Count, FusedLoop


def encode_loop(loop: FusedLoop) -> Encoded:
    """The block as `Nest` defines it."""
    words = [loop.grain, *loop.extents]
    relocations = []
    for operand in loop.operands:
        if isinstance(operand, Count):
            words += (operand.start, *operand.strides, 0)
        else:
            relocations.append(Relocation(len(words), operand.address))
            words += (0, *operand.strides, operand.pitch)
    if loop.record is not None:
        relocations.append(Relocation(len(words), loop.record))
        words.append(0)
    return Encoded(loop.nest, np.array(words, np.int64), tuple(relocations))
