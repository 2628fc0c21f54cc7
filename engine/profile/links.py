"""Transfers between IPUs: activations of a pipeline over IPU-Links, sums of gradients over links and gateways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, log2

from engine.frozen import frozen
from engine.profile.loops import runs_of, states_in_place
from engine.profile.options import Assumptions, SelectionOrder
from engine.program.program import Buffer, ComputeSet, Program
from engine.target import Target

LINKS = 10
"""IPU-Links of an IPU; `link_bytes_per_second` is the rate of all of them."""
LINKS_TO_PARTNER = 4
"""Links between the two IPUs of a rung of the ladder."""
LINKS_ALONG = 2
"""Links to the IPU above on the ladder, and as many to that below (V, poplibs_test/Util.cpp; two more go across)."""
LINKS_OF_RING = LINKS_ALONG + 2
"""Links that a ring of many IPUs uses in one direction: those along the ladder and across. D: the ladder's wiring."""
GRADIENT_LINKS = LINKS_OF_RING / LINKS
"""Fraction of an IPU's links that a ring uses in one direction."""


@frozen
class AllReduce:
    """Cost of a sum over IPUs: seconds of transfer and of syncs, and the algorithm."""

    transfer: float
    syncs: float
    algorithm: str

    @property
    def seconds(self) -> float:
        return self.transfer + self.syncs


@frozen
class Selection:
    """The IPU of the ladder for each of `shards` shards.

    "HOOF" goes up one side of the ladder and down the other. All other orders go up rung by rung. The links across
    give neighbours in ZIGZAG as many links as in SNAKE.
    """

    order: SelectionOrder = "AUTO"
    shards: int = 1

    def rung(self, shard: int) -> int:
        """The rung of the ladder, counted from 0."""
        return min(shard, self.shards - 1 - shard) if self.order == "HOOF" else shard // 2


IN_ORDER = Selection()
NOTHING = AllReduce(0.0, 0.0, "none")


def links_between(one: int, other: int, selection: Selection = IN_ORDER) -> int:
    """Number of IPU-Links between the IPUs of two shards; distant IPUs are connected along the ladder."""
    return LINKS_TO_PARTNER if selection.rung(one) == selection.rung(other) else LINKS_ALONG


def link_rate(source: int, destination: int, target: Target, selection: Selection = IN_ORDER) -> float:
    """Bytes per second from the IPU of one shard to that of another."""
    return target.link_bytes_per_second * links_between(source, destination, selection) / LINKS


def transfer_cycles(size: int, source: int, destination: int, target: Target, selection: Selection = IN_ORDER) -> int:
    """Cycles of `size` bytes from the IPU of one shard to that of another."""
    return ceil(size / link_rate(source, destination, target, selection) * target.clock_hz)


def all_reduce(
    size: int, replicas: int, target: Target, ipus_per_replica: int = 1, syncless: bool = False
) -> AllReduce:
    """Cost of an all-reduce of `size` bytes over replicas: by ring or tree, whichever is faster.

    A `syncless` sum has one sync at its beginning instead of one for each step. With several IPUs per replica, the
    IPUs of each stage have their own sum, and all sums run concurrently. IPUs of several domains of IPU-Links take
    three steps: reduce-scatter within each domain, all-reduce of each part over the gateways, all-gather within each
    domain.
    """
    if replicas <= 1 or size <= 0:
        return NOTHING
    domain = min(replicas, max(1, target.ipus_per_link_domain // ipus_per_replica))
    latency = target.external_sync_cycles(domain * ipus_per_replica) / target.clock_hz
    within = _fastest(size, domain, target.link_bytes_per_second * GRADIENT_LINKS, latency, syncless)
    domains = -(-replicas // domain)
    if domains == 1:
        return within
    across = _fastest(
        -(-size // domain), domains, target.gateway_link_bytes_per_second, target.gateway_link_latency_seconds, syncless
    )
    name = f"{within.algorithm} over IPU-Links, {across.algorithm} over GW-Links"
    return AllReduce(within.transfer + across.transfer, within.syncs + across.syncs, name)


def all_reduce_each(
    sizes: Iterable[int], replicas: int, target: Target, ipus_per_replica: int = 1, syncless: bool = False
) -> AllReduce:
    """Cost of several all-reduces in sequence; the algorithms are named in the order of their first use."""
    sums = [all_reduce(size, replicas, target, ipus_per_replica, syncless) for size in sizes if size > 0]
    names = dict.fromkeys(each.algorithm for each in sums)
    if not sums:
        return NOTHING
    return AllReduce(sum(each.transfer for each in sums), sum(each.syncs for each in sums), "; ".join(names))


def waiting_together(sizes: Iterable[int], most: int) -> tuple[int, ...]:
    """Bytes of each group of arrays that is summed at once: at most `most` bytes, or one array; 0 makes no groups."""
    groups: list[int] = []
    for size in sizes:
        if groups and groups[-1] + size <= most:
            groups[-1] += size
        else:
            groups.append(size)
    return tuple(groups)


def _fastest(size: int, members: int, rate: float, latency: float, syncless: bool) -> AllReduce:
    if members <= 1:
        return NOTHING
    steps = 2 * (members - 1)
    ring = AllReduce(steps / members * size / rate, (1 if syncless else steps) * latency, "ring")
    levels = 2 * ceil(log2(members))
    tree = AllReduce(levels * size / rate, (1 if syncless else levels) * latency, "tree")
    return min(ring, tree, key=lambda each: each.seconds)


def gradient_sizes(program: Program) -> tuple[int, ...]:
    """Bytes of each gradient, in order: the arrays of a variable's size read by compute sets that update it."""
    found: dict[Buffer, int] = {}
    stands = states_in_place(program.compute_sets)
    for compute_set in program.compute_sets:
        found |= {buffer: buffer.shape.bytes for buffer in _gradients(compute_set, stands)}
    return tuple(found.values())


def _gradients(compute_set: ComputeSet, stands: Mapping[Buffer, Buffer]) -> list[Buffer]:
    """The gradients that a compute set reads; `stands` are states of loops that stand for variables."""
    written = (stands.get(span.buffer, span.buffer) for span in compute_set.writes)
    updated = {buffer.shape.elements for buffer in written if buffer.kind == "variable"} - {1}
    read = [span.buffer for span in compute_set.reads if span.buffer not in stands]
    return [buffer for buffer in read if buffer.kind == "arena" and buffer.shape.elements in updated]


def gradient_bytes(program: Program) -> int:
    """Bytes of all gradients of a program."""
    return sum(gradient_sizes(program))


def gradient_sums(program: Program, assumptions: Assumptions) -> tuple[int, ...]:
    """Bytes of each sum of gradients over replicas."""
    return waiting_together(gradient_sizes(program), assumptions.optimizations.cross_replica_sum_bytes)


def updates_of(program: Program, assumptions: Assumptions) -> int:
    """Number of times that a step updates variables by gradients, and so sums these over replicas; at least 1."""
    stands = states_in_place(program.compute_sets)
    runs = [n for each, n in zip(program.compute_sets, runs_of(program), strict=True) if _gradients(each, stands)]
    return max(1, max(runs, default=1) // assumptions.state_interval)


def all_reduce_cycles(sums: Iterable[int], target: Target, replicas: int, syncless: bool = False) -> tuple[int, int]:
    """Exchange and sync cycles of sums over replicas, `sums` in bytes (engine.profile.links)."""
    found = all_reduce_each(sums, replicas, target, syncless=syncless)
    return ceil(found.transfer * target.clock_hz), ceil(found.syncs * target.clock_hz)
