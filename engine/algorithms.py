"""`python -m engine.algorithms PROGRAM`: lists how this processor computes each product and convolution of a program.

For a convolution the bids of all ways that can compute it are printed, in estimated cycles, the chosen one first. The
names of the work that runs come last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.aot import program_at
from engine.errors import IPUError
from engine.program.program import ComputeSet, Program
from engine.resource_limits import add_limit_argument, limits


@dataclass
class AlgorithmChoice:
    """The choice for one product or convolution: bids as texts, and the types of the work that computes it."""

    name: str
    operation: str
    multiply_adds: int
    bids: list[str] = field(default_factory=list)
    work: list[str] = field(default_factory=list)


def selections(program: Program) -> list[AlgorithmChoice]:
    """The choices for all products and convolutions of a program as `build_program` returns it, in order."""
    from engine.host.passes.pass_list import passes_for
    from engine.program.run_passes import run_passes
    from engine.program.work.contraction import Contraction
    from engine.program.work.convolution import Convolution

    found: dict[str, AlgorithmChoice] = {}
    for each in program.compute_sets:
        if isinstance(each.work, Contraction | Convolution):
            found[each.name] = AlgorithmChoice(each.name, each.op_name, each.work_estimate.multiply_adds)
            if isinstance(each.work, Convolution):
                found[each.name].bids.append(_offers(each))
    running = run_passes(program, passes_for(program))
    for each in running.compute_sets:
        selection = _selection_of(each.name, found)
        if selection is not None:
            links = getattr(each.work, "links", ())
            kinds = [type(link.work).__name__ for link in links] or [type(each.work).__name__]
            selection.work += [kind for kind in kinds if kind not in selection.work]
    return list(found.values())


def _offers(convolution: ComputeSet) -> str:
    """The bids in cycles of a convolution's ways, the chosen one first."""
    from engine.host.select import choose, draft_of

    choice = choose(draft_of(convolution))
    others = sorted(choice.bids.keys() - {choice.way}, key=lambda way: choice.bids[way])
    return ", ".join(f"{way}{_cycles(choice.bids.get(way))}" for way in (choice.way, *others))


def _cycles(count: float | None) -> str:
    return "" if count is None else f" {count:,.0f} cycles"


def _selection_of(name: str, found: dict[str, AlgorithmChoice]) -> AlgorithmChoice | None:
    """The selection of a compute set's name, which begins with that of the product or convolution."""
    while name:
        if name in found:
            return found[name]
        name = name.rpartition(".")[0]
    return None


def text_of(chosen: Sequence[AlgorithmChoice]) -> str:
    """A text with three lines for each selection."""
    return "\n".join(
        f"{each.name}  {each.operation}  {each.multiply_adds:,} multiply-adds\n"
        f"    offered: {'; '.join(each.bids) or 'contraction'}\n    runs as: {', '.join(each.work) or 'nothing'}"
        for each in chosen
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the selections of a program; returns the exit status."""
    parser = argparse.ArgumentParser("python -m engine.algorithms", description=__doc__)
    parser.add_argument("program", type=Path, help="a program, or an exported directory that holds one in assets")
    add_limit_argument(parser)
    options = parser.parse_args(arguments)
    from engine.compile import build_program
    from engine.files.executable_file import read_executable

    try:
        with limits(**dict(options.limit)):
            file = read_executable(program_at(options.program))
            print(text_of(selections(build_program(file.module, file.roles, file.constants))))
    except (IPUError, OSError) as error:
        print(f"python -m engine.algorithms: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
