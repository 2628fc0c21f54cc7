"""Loops in LLVM IR that emitters write: with values carried from iteration to iteration, and over vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.codelets.language import vector
from engine.codelets.language.memory import I64
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes


class EmittedLoop:
    """A loop over begin <= at < end; the builder writes its body until `close`.

    It has at least one iteration, unless it `may_be_empty`; then `carried` are the values after it once it is closed.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        name: str,
        begin: ir.Value,
        end: ir.Value,
        step: ir.Value,
        carried: Sequence[ir.Value] = (),
        may_be_empty: bool = False,
    ) -> None:
        self.builder, self.end, self.step = builder, end, step
        before, self.block = builder.block, builder.append_basic_block(name)
        self.done = builder.append_basic_block(f"after_{name}")
        self._skipped = (before, carried) if may_be_empty else None
        if may_be_empty:
            builder.cbranch(builder.icmp_signed("<", begin, end), self.block, self.done)
        else:
            builder.branch(self.block)
        builder.position_at_end(self.block)
        self.at = builder.phi(I64)
        self.at.add_incoming(begin, before)
        self.carried = [builder.phi(value.type) for value in carried]
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, before)

    def close(self, carried: Sequence[ir.Value] = ()) -> None:
        """Ends the body with the carried values of the next iteration; the builder continues after the loop."""
        builder = self.builder
        following = builder.add(self.at, self.step)
        self.at.add_incoming(following, builder.block)
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, self.end), self.block, self.done)
        last = builder.block
        builder.position_at_end(self.done)
        if self._skipped is not None:
            before, initial = self._skipped
            self.carried = [builder.phi(value.type) for value in carried]
            for phi, first, then in zip(self.carried, initial, carried, strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(then, last)


def for_vectors(
    builder: ir.IRBuilder, count: ir.Value, body: Callable[[ir.Value, int, ir.Value | None], None], together: int = 1
) -> None:
    """Writes body(first element, vectors, mask of lanes) for all of `count` elements; whole vectors have no mask.

    `together` vectors are computed side by side where operations of one wait for each other.
    """
    done: ir.Value = I64(0)
    for vectors in dict.fromkeys((together, 1)):
        step = vectors * lanes()
        end = builder.add(done, builder.and_(builder.sub(count, done), I64(-step)))
        with builder.if_then(builder.icmp_signed(">", end, done)):
            loop = EmittedLoop(builder, "vectors", done, end, I64(step))
            body(loop.at, vectors, None)
            loop.close()
        done = end
    rest = builder.sub(count, done)
    with builder.if_then(builder.icmp_signed(">", rest, I64(0))):
        body(done, 1, vector.lane_mask(builder, rest))
