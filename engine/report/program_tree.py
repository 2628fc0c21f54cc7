"""The program as a tree: passes, loops and branches, and inside them runs of compute sets of one layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from engine.program.program import Region

Node = dict[str, Any]
PARTS = ("compute", "exchange", "sync", "cycles")
PASSES = ("forward pass", "backward pass", "update")


def program_tree(
    rows: Sequence[Node], regions: Sequence[Region], backward: Sequence[bool], in_pipeline: bool = False
) -> Node:
    """The tree of a program with these rows of compute sets; a node has the cycles of all nodes below it.

    `backward` says for each compute set whether it computes gradients. If some do, the compute sets before the first of
    them are the forward pass, and those after the last one are the update.

    A node has its `kind` ("program", "pass", "loop", "branch" or "layer"), `name`, compute sets `begin` <= k < `end`,
    cycles by part, and `children`. Compute sets that are in none of the children are the node's own. A loop's
    `iterations` are None if they are known only at run time. The outermost loop of an IPU `in_pipeline` is that over
    micro-batches; the rows have one micro-batch.
    """
    inside = sorted((region for region in regions if region.begin < region.end), key=_outermost_first)
    tree = _Tree(rows, backward).node("program", "step", 0, len(rows), inside)
    if in_pipeline:
        for child in tree["children"]:
            child["name"] = "each micro-batch" if child["kind"] == "loop" else child["name"]
    return tree


def _outermost_first(region: Region) -> tuple[int, int, bool]:
    return region.begin, -region.end, not region.repeats


class _Tree:
    def __init__(self, rows: Sequence[Node], backward: Sequence[bool]) -> None:
        self.rows, self.backward = rows, backward

    def node(self, kind: str, name: str, begin: int, end: int, regions: list[Region]) -> Node:
        """The node of compute sets begin <= k < end with their `regions`, outer regions before inner ones."""
        found, at = [], begin
        while regions:
            region = regions.pop(0)
            found += self._layers(at, region.begin, 0)
            inside = []
            while regions and regions[0].end <= region.end:
                inside.append(regions.pop(0))
            found.append(self._of_region(region, inside))
            at = region.end
        return self._made(kind, name, begin, end, self._in_passes([*found, *self._layers(at, end, 0)], begin, end))

    def _of_region(self, region: Region, inside: list[Region]) -> Node:
        begin, end = region.begin, region.end
        if not region.repeats:
            return self.node("branch", "branch, counted as taken", begin, end, inside)
        # The body of a loop is a region of its own; the compute sets before it are the condition.
        body = next((each for each in inside if not each.repeats and each.end == end), None)
        if body is not None:
            inside.remove(body)
        times = "unknown number of" if region.iterations is None else f"{region.iterations:,}"
        name = f"loop, {times} iteration{'' if region.iterations == 1 else 's'}"
        return self.node("loop", name, begin, end, inside) | {"iterations": region.iterations}

    def _in_passes(self, children: list[Node], begin: int, end: int) -> list[Node]:
        """Put the children into a node for each pass, if there are several passes and no child has several."""
        gradients = [at for at in range(begin, end) if self.backward[at]]
        if not gradients:
            return children
        bounds = (begin, gradients[0], gradients[-1] + 1, end)
        ranges = [(a, b) for a, b in pairwise(bounds) if a < b]
        if len(ranges) == 1 or any(c["begin"] < at < c["end"] for c in children for at in bounds):
            return children
        return [
            self._made("pass", name, a, b, [c for c in children if a <= c["begin"] < b])
            for name, (a, b) in zip(PASSES, pairwise(bounds), strict=True)
            if a < b
        ]

    def _layers(self, begin: int, end: int, depth: int) -> list[Node]:
        """Runs of consecutive compute sets whose layers have the same path down to `depth`, each a node."""
        found = []
        for first, last in self._runs(begin, end, depth):
            parts = self._path(first)
            if len(parts) <= depth or last - first == 1:
                continue  # they are the node's own
            inside = self._layers(first, last, depth + 1)
            if len(inside) == 1 and (inside[0]["begin"], inside[0]["end"]) == (first, last):
                found.append(inside[0])  # a scope around a single scope adds nothing
            else:
                found.append(self._made("layer", "/".join(parts[: depth + 1]), first, last, inside))
        return found

    def _runs(self, begin: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
        first = begin
        for at in range(begin, end):
            if at + 1 == end or self._differ(at + 1, first, depth):
                yield first, at + 1
                first = at + 1

    def _differ(self, one: int, other: int, depth: int) -> bool:
        """Whether two compute sets are of different layers or of different passes."""
        same = self._path(one)[: depth + 1] == self._path(other)[: depth + 1]
        return not same or self.backward[one] != self.backward[other]

    def _path(self, at: int) -> list[str]:
        return [part for part in self.rows[at]["layer"].split("/") if part]

    def _made(self, kind: str, name: str, begin: int, end: int, children: list[Node]) -> Node:
        sums = {part: sum(row[part] for row in self.rows[begin:end]) for part in PARTS}
        return {"kind": kind, "name": name, "begin": begin, "end": end, **sums, "children": children}
