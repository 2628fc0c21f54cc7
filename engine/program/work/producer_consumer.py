"""Two works fused unit by unit: each unit of the producer, then the same unit of the consumer of what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.codelets.hand_over import HandOver, hand_over, hand_over_scratch_bytes
from engine.program.buffer import Address, Buffer
from engine.program.work.base import Encoded, Footprint, Work, addresses_in


@dataclass(frozen=True, slots=True)
class ProducerConsumer(Work):
    """`through` is the one buffer between them, of which a unit has `piece_bytes`; it never becomes memory."""

    producer: Work
    consumer: Work
    through: Buffer
    piece_bytes: int

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Those of both but for the buffer between them."""
        return tuple(a for a in addresses_in((self.producer, self.consumer)) if a.buffer is not self.through)

    def footprints(self) -> Iterator[Footprint]:
        """Those of the works in it, but for what never becomes memory."""
        return (
            f
            for work in (self.producer, self.consumer)
            for f in work.footprints()
            if f.address.buffer is not self.through
        )

    def encode(self) -> Encoded:
        """The head of `hand_over`, then both parameter blocks."""
        producer, consumer = self.producer.encode(), self.consumer.encode()
        words = len(producer.words), len(consumer.words)
        head = np.zeros(HandOver.WORDS, np.int64)
        through = (
            next(r.word for r in e.relocations if r.address.buffer is self.through) for e in (producer, consumer)
        )
        head[HandOver.WRITER_WORDS :] = (*words, *through, self.piece_bytes)
        placed = ((len(head), producer), (len(head) + words[0], consumer))
        return Encoded(
            hand_over,
            np.concatenate([head, producer.words, consumer.words]),
            tuple(
                replace(r, word=first + r.word)
                for first, each in placed
                for r in each.relocations
                if r.address.buffer is not self.through
            ),
            hand_over_scratch_bytes(sum(words), self.piece_bytes, max(producer.scratch_bytes, consumer.scratch_bytes)),
            (*producer.keep, *consumer.keep),
            ((int(HandOver.WRITER), producer.codelet), (int(HandOver.READER), consumer.codelet)),
        )
