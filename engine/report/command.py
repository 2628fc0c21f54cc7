"""The command `ipu-profile`, which builds, prints and compares reports.

    ipu-profile make model.poplar_exec -o report.html
    ipu-profile print report.json
    ipu-profile compare before.json now.json --threshold 3

The exit code is 0; 1 if `compare` finds a regression, or with `make --check` a program that does not fit;
2 for invalid arguments and files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.errors import IPUError
from engine.report.comparison import THRESHOLD, compare
from engine.report.report import Report, report_of_estimates
from engine.report.verdicts import CHIPS
from engine.resource_limits import interruptible, within_seconds
from engine.target import target
from engine.whole_files import write_whole

REPORTS = (".json", ".html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments`, or with those of the process; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (OSError, IPUError) as error:
        print(f"ipu-profile: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ipu-profile", description="What a chip would do with a compiled program.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chip = argparse.ArgumentParser(add_help=False)
    chip.add_argument("--target", default="ipu2", choices=CHIPS, help="the chip, for an executable (%(default)s)")
    chip.add_argument("--replicas", type=int, default=1, help="chips that run an executable side by side (%(default)s)")

    make = commands.add_parser("make", parents=[chip], help="make a report of an executable file, or a page of a JSON")
    make.add_argument("file", type=Path, help="a .poplar_exec file, or a report as .json or .html")
    make.add_argument("-o", "--output", type=Path, help="the page to write; .json, .trace.json and .txt come beside it")
    make.add_argument("--check", action="store_true", help="exit with 1 if the program does not fit")
    make.set_defaults(run=_make)

    show = commands.add_parser("print", parents=[chip], help="print a report as text")
    show.add_argument("file", type=Path, help="a report as .json or .html, or a .poplar_exec file")
    show.set_defaults(run=_print)

    compared = "compare two reports; exit with 1 if cycles grew too much"
    against = commands.add_parser("compare", parents=[chip], help=compared)
    against.add_argument("before", type=Path)
    against.add_argument("now", type=Path)
    against.add_argument(
        "--threshold", type=float, default=100 * THRESHOLD, help="per cent more cycles that are allowed (%(default)g)"
    )
    against.add_argument("--html", type=Path, help="write one page of the second report that opens on the comparison")
    against.set_defaults(run=_compare)
    return parser


def _make(options: argparse.Namespace) -> int:
    report = _report(options.file, options)
    output = options.output or options.file.with_suffix(".html")
    with _telling(f"drawing {output}"):
        written = report.save(output)
    for file in written:
        print(f"{file}  {file.stat().st_size:,} bytes")
    return int(options.check and not report.fits)


def _print(options: argparse.Namespace) -> int:
    print(_report(options.file, options).text(), end="")
    return 0


def _compare(options: argparse.Namespace) -> int:
    before, now = (_report(file, options) for file in (options.before, options.now))
    found = compare(before, now, options.threshold / 100)
    print(found.text(), end="")
    if options.html:
        with _telling(f"drawing {options.html}"):
            write_whole(options.html, found.report().html())
        print(f"{options.html}  {options.html.stat().st_size:,} bytes")
    return int(found.regressed)


def _report(file: Path, options: argparse.Namespace) -> Report:
    if file.suffix in REPORTS:
        return Report.load(file)
    # Only executables need the compiler, and Numba is slow to import.
    from engine.files.executable_file import read_executable
    from engine.report.executables import estimator_of

    with _telling(f"reading {file}"):
        executable = read_executable(file)
    count = len(executable.module.entry.instructions)
    with _telling(f"compiling {count:,} instructions"), within_seconds(str(file)), interruptible():
        on_chip, program = estimator_of(executable, options.replicas)
    with _telling(f"estimating them on {len(CHIPS)} chips"):
        return report_of_estimates(on_chip, target(options.target), program, name=file.stem)


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Print an activity and its seconds on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    start = time.monotonic()
    sys.stderr.write(f"ipu-profile: {what} ... ")
    sys.stderr.flush()
    yield
    sys.stderr.write(f"{time.monotonic() - start:.1f} s\n")


if __name__ == "__main__":
    sys.exit(main())
