"""`python -m ipu.run --processes N -- program.py`: runs a program in several processes, by MPI's own launcher.

`python -m ipu.run --tf1 program.py` runs a program of TensorFlow 1 unchanged, in one process or in several.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from engine.errors import ConfigurationError, IPUError

__all__ = ["main"]


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser("python -m ipu.run", description=__doc__)
    made.add_argument("--processes", "-n", type=int, help="the number of processes (needed without --tf1)")
    made.add_argument("--replicas", type=int, default=1, help="replicas in each process (default 1)")
    made.add_argument("--ipus-per-replica", type=int, default=1, help="IPUs of each replica (default 1)")
    made.add_argument("--workers", type=int, help="worker threads of each process (default: cores / processes)")
    made.add_argument("--gradients", choices=("float32", "bfloat16"), help="the type of gradients between processes")
    made.add_argument(
        "--bucket-bytes",
        type=int,
        help="bytes of gradients that are summed together (default all, or 4 MiB with --hosts)",
    )
    made.add_argument("--hosts", help="machines and their numbers of processes, as in host1:2,host2:2")
    made.add_argument("--tf1", action="store_true", help="run a program of TensorFlow 1: `tensorflow` is its API")
    made.add_argument("program", nargs=argparse.REMAINDER, help="a Python program or -m module, and its arguments")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status: of several processes, that of the first one to fail."""
    options = parser().parse_args(arguments)
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    from ipu._internal.processes.launcher import launch, without_interpreter

    try:
        program = without_interpreter(program) if options.tf1 else program
        if options.tf1 and options.processes is None:
            from ipu._internal.commands.version1 import run_version_1

            run_version_1(program)
            return 0
        if options.processes is None:
            raise ConfigurationError("Expected --processes N, or --tf1. Received: neither. Example: --processes 2.")
        program = ["-m", "ipu.run", "--tf1", *program] if options.tf1 else program
        return launch(
            program,
            options.processes,
            options.replicas,
            options.workers,
            options.hosts,
            gradients=options.gradients,
            ipus_per_replica=options.ipus_per_replica,
            bucket_bytes=options.bucket_bytes,
        )
    except IPUError as error:
        print(f"python -m ipu.run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
