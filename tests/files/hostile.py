"""Runs programs from files that were tampered with and then sealed with right checksums.

It runs in its own process, so that a crash is seen: `python -m tests.files.hostile SEED COUNT` prints how many of the
files ran, and how many were refused. Every other end, a wrong kind of error too, is a fault.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.errors import IPUError
from engine.files.container import pack, unpack
from engine.files.executable_file import from_bytes, to_bytes
from engine.ir import GatherDimensionNumbers, ScatterDimensionNumbers, WindowDimension
from engine.ir.builder import Builder, binary_computation
from engine.loaded import LoadedExecutable
from tests.files.programs import classifier, plain_file

Path = tuple[Any, ...]


def programs() -> Iterator[bytes]:
    """Operations whose attributes are places in memory."""
    yield to_bytes(classifier())
    b = Builder()
    x, y, ids = b.parameter("f32", (6, 7)), b.parameter("f32", (3, 7)), b.parameter("s32", (3, 1))
    rows = GatherDimensionNumbers((1,), (0,), (0,), 1)
    taken = b.inferred("gather", (x, ids), gather_dimension_numbers=rows, gather_slice_sizes=(1, 7))
    numbers = ScatterDimensionNumbers((1,), (0,), (0,), 1)
    body = binary_computation("add", "f32")
    put = b.inferred("scatter", (x, ids, y), (body,), scatter_dimension_numbers=numbers)
    yield plain_file(b.module(b.tuple(taken, put)))
    b = Builder()
    x, at = b.parameter("f32", (4, 6)), b.parameter("s32")
    part = b.inferred("dynamic-slice", (x, at, at), dynamic_slice_sizes=(2, 3))
    back = b.inferred("dynamic-update-slice", (x, part, at, at))
    window = (WindowDimension(2, 2), WindowDimension(3, 1, 1, 1))
    pooled = b.reduce_window(x, b.constant(0.0), window, "maximum")
    padded = b.pad(b.slice(x, (1, 4, 2), (0, 6)), b.constant(1.0), (1, 1), (0, 2, 1))
    moved = b.concatenate([b.reverse(padded, (1,)), b.transpose(b.reshape(padded, (13, 4)), (1, 0))], 1)
    sorted_rows = b.inferred("sort", (x,), (_less(),), dimensions=(1,), is_stable=True)
    counted = b.reshape(b.iota("s32", (2, 12), 1), (24,))
    yield plain_file(b.module(b.tuple(back, pooled, moved, sorted_rows, counted)))


def _less() -> Any:
    b = Builder("less")
    return b.build(b.compare(b.parameter("f32"), b.parameter("f32"), "LT"))


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths to all parts of a JSON value."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def tamper(program: Any, choose: random.Random) -> None:
    """Changes one part, or a few."""
    for _ in range(choose.choice((1, 1, 2, 3))):
        *path, last = choose.choice(list(places(program)))
        holder = program
        for key in path:
            holder = holder[key]
        value = holder[last]
        if isinstance(value, bool):
            holder[last] = not value
        elif isinstance(value, int):
            holder[last] = choose.choice((value + 1, value - 1, -1, 0, 2 * value, choose.randrange(9), 10**6, 2**40))
        elif isinstance(value, str):
            holder[last] = choose.choice(WORDS)
        elif isinstance(value, list) and value:
            part = choose.randrange(len(value))
            holder[last] = choose.choice((value[:part] + value[part + 1 :], [*value, value[part]], value[::-1]))


WORDS = ("f32", "s32", "pred", "f64", "add", "gather", "while", "parameter", "GT", "", "reverse", "custom-call")


def adapted(header: dict[str, Any], program: Any) -> None:
    """Fits the signature to the module as far as possible, as an attacker would."""
    entry = program["module"]["computations"][-1]
    instructions = entry["instructions"]
    feeds = sorted((i for i in instructions if i[1] == "parameter"), key=lambda i: i[4]["parameter_number"])
    root = instructions[entry["root"]]
    results = [instructions[k] for k in root[3]] if root[1] == "tuple" else [root]
    program["roles"] = ["feed"] * len(feeds)
    program["constants"] = {}
    header["inputs"] = [{"name": f"i{k}", "shape": i[2]} for k, i in enumerate(feeds)]
    header["outputs"] = [{"name": f"o{k}", "shape": i[2]} for k, i in enumerate(results)]


def attempt(content: bytes, choose: random.Random) -> str:
    """Tampers with a file and uses it; returns the outcome."""
    header, sections = unpack(content, "the original")
    program = json.loads(bytes(sections["program"]))
    try:
        tamper(program, choose)
        adapted(header, program)
    except (KeyError, IndexError, TypeError, AttributeError):
        pass  # too broken to read: it is tried as it is
    hostile = pack(header, {"program": json.dumps(program).encode(), "arrays": bytes(sections["arrays"])})
    try:
        loaded = LoadedExecutable(from_bytes(hostile, "a hostile file"))
        random_numbers = np.random.default_rng(choose.randrange(99))
        inputs = [random_numbers.integers(-9, 2**31, i.shape).astype(i.dtype) for i in loaded.inputs]
        loaded.run(inputs)
    except IPUError as error:
        assert isinstance(error, ValueError | NotImplementedError | RuntimeError), error
        return "refused"
    except MemoryError:
        return "refused"
    return "ran"


def main(seed: int, count: int) -> None:
    """Prints the numbers."""
    faulthandler.enable()
    originals = list(programs())
    ends: Counter[str] = Counter()
    with np.errstate(all="ignore"):
        for k in range(count):
            choose = random.Random(f"{seed} {k}")
            ends[attempt(choose.choice(originals), choose)] += 1
    print(json.dumps(ends))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
