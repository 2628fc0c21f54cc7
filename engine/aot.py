"""`python -m engine.aot PROGRAM`: compiles a program ahead of time, for processes without Numba and LLVM."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import ConfigurationError, IPUError
from engine.machine_code.instruction_sets import LEVELS
from engine.resource_limits import add_limit_argument, limits

SUFFIXES = (".popef", ".poplar_exec")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser("python -m engine.aot", description=__doc__)
    made.add_argument("program", type=Path, help="a program, or an exported directory that holds one in assets")
    made.add_argument("--cpu", choices=["host", *LEVELS], default="host", help="the oldest processor that is to run it")
    made.add_argument("--output", type=Path, help="the file to write; beside the program if not given")
    add_limit_argument(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes a file of objects; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.cpu != "host":  # read by Numba, and by engine.machine_code.processor
        os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = LEVELS[options.cpu]
    try:
        program = program_at(options.program)
        output = options.output or program.with_suffix(f".{options.cpu}.objects")
        with limits(**dict(options.limit)):
            count = compile_ahead(program, output)
    except (IPUError, OSError) as error:
        print(f"python -m engine.aot: {error}", file=sys.stderr)
        return 1
    print(f"{output}: {count} objects, {output.stat().st_size / 1e6:.1f} MB")
    return 0


def program_at(path: Path) -> Path:
    """The program of an exported directory, or the path itself. Raises ConfigurationError for other directories."""
    if not path.is_dir():
        return path
    found = [each for each in (path / "assets").glob("*") if each.suffix in SUFFIXES]
    if len(found) != 1:
        raise ConfigurationError(f"Expected one program in {path / 'assets'}. Received: {len(found)}.")
    return found[0]


def compile_ahead(program: Path, output: Path) -> int:
    """Writes all object code that a program needs for the processor of this process' environment; returns its count.

    The program's encoding comes with it, unless the program calls the host or has queues.
    """
    from engine.codelets.language.build import make
    from engine.codelets.threads.waiting import pause_often
    from engine.compile import build_program
    from engine.files.executable_file import from_bytes, read_program
    from engine.files.objects import write_objects
    from engine.loaded import compiling
    from engine.machine_code.caches import second_level
    from engine.machine_code.given_objects import ObjectOrigin, recording
    from engine.machine_code.instruction_sets import flag_of, flags
    from engine.machine_code.keys import compilers_and_processor
    from engine.machine_code.processor import features_text, target
    from engine.runtime import encoded_file
    from engine.runtime.encode import encode_program
    from engine.runtime.executable import Executable
    from engine.runtime.persistent_threads import codelets_of_persistent_threads

    data = read_program(program)
    with recording() as objects, compiling(str(program)):
        file = from_bytes(data, str(program))
        encoded = encode_program(build_program(file.module, file.roles, file.constants))
        encoding = encoded_file.to_bytes(encoded_file.EncodedFile.of(file, encoded), data)
        Executable(encoded)
        make([pause_often, *codelets_of_persistent_threads()])
    count = len(objects)
    if encoding is not None:
        objects[encoded_file.name_of(data)] = encoding
    name, features = target()
    required = {flag_of(feature) for feature in features}
    if "NUMBA_CPU_NAME" not in os.environ:  # Linux names no others, such as those that all processors have
        required &= flags()
    origin = ObjectOrigin(compilers_and_processor(), name, features_text(), second_level())
    write_objects(output, origin, objects, sorted(required))
    return count


if __name__ == "__main__":
    sys.exit(main())
