"""The arguments of `python -m ipu`, and the command that each names."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from ipu._internal.commands import cache, machine

DESCRIPTION = """Without a command: this machine, its instruction sets and cores, versions, and what is compiled.
Further commands are modules: python -m ipu.check, ipu.run and ipu.serving."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 for a benchmark whose model cannot be built or trained."""
    parser = argparse.ArgumentParser(prog="python -m ipu", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command")
    kept = commands.add_parser("cache", help="what is compiled and kept on disk")
    change = kept.add_mutually_exclusive_group()
    change.add_argument("--clear", action="store_true", help="delete it; what is needed is compiled again")
    change.add_argument("--warm", action="store_true", help="compile ahead what does not depend on a model")
    bench = commands.add_parser("bench", help="compare a model of yours with plain Keras")
    bench.add_argument("model", help="FILE:FUNCTION; the function returns (compiled model, x, y), or a compiled model")
    bench.add_argument("--batch-size", type=_positive, default=32, help="samples of a batch (default: 32)")
    bench.add_argument("--samples", type=_positive, default=2048, help="of random data, where the function gives none")
    bench.add_argument("--rounds", type=_positive, default=5, help="epochs of each, interleaved (default: 5)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if options.command == "bench":
        from ipu._internal.commands.bench import bench as run  # late: it imports TensorFlow

        return run(options.model, options.batch_size, options.samples, options.rounds)
    if options.command == "cache":
        lines = cache.cleared if options.clear else cache.warmed if options.warm else cache.listing
        print("\n".join(lines()))
    else:
        print("\n".join([*machine.listing(), *cache.listing()]))
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, received {text}")
    return value
