"""Two works fused unit by unit: each unit of the producer, then the same unit of the consumer of what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.codelets.hand_over import HandOver, hand_over, hand_over_scratch_bytes
from engine.codelets.record import block
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
        head = HandOver(
            writer_words=len(producer.words),
            reader_words=len(consumer.words),
            written=producer.words_of(self.through)[0],
            read=consumer.words_of(self.through)[0],
            piece_bytes=self.piece_bytes,
        )
        words, scratch_bytes = (
            head.writer_words + head.reader_words,
            max(producer.scratch_bytes, consumer.scratch_bytes),
        )
        private = (self.through,)
        return Encoded.of(
            hand_over,
            block(head, producer.parts(private), consumer.parts(private)),
            hand_over_scratch_bytes(words, self.piece_bytes, scratch_bytes),
            ((HandOver.WRITER, producer.codelet), (HandOver.READER, consumer.codelet)),
            (producer, consumer),
        )
