"""Passes, lowering and program passes visit each instruction a bounded number of times, however often it is read."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import FrameType

import pytest

import engine
from engine.compile import build_program
from engine.ir import Computation, Instruction, Module, Shape, TupleShape
from engine.ir.builder import Builder
from engine.ir.opcodes import OPCODES
from engine.passes.groups import MOST_CODE
from engine.program.nest import Apply
from engine.program.work.fused_loop import FusedLoop
from engine.runtime.encode import encode_program

ENGINE = str(Path(engine.__file__).parent)
Link = Callable[[Builder, Instruction], Instruction]
# Each link reads its operand at least twice: a walk that forgets what it has seen doubles with every link.
LINKS: dict[str, Link] = {
    "add": lambda b, y: b.add(y, y),
    "subtract": lambda b, y: b.subtract(y, b.multiply(y, y)),
    "multiply": lambda b, y: b.multiply(y, y),
    "divide": lambda b, y: b.divide(y, b.add(y, y)),
    "maximum": lambda b, y: b.elementwise("maximum", y, b.elementwise("negate", y)),
    "select": lambda b, y: b.select(b.compare(y, b.add(y, y), "LT"), b.multiply(y, y), b.add(y, y)),
    "silu": lambda b, y: b.multiply(y, b.elementwise("logistic", y)),
    "tanh": lambda b, y: b.multiply(b.elementwise("tanh", y), y),
    "power": lambda b, y: b.elementwise("power", y, b.add(y, y)),
    "concatenate": lambda b, y: b.add(
        b.slice(b.concatenate((y, y), 0), (1, 5, 1)), b.slice(b.concatenate((y, y), 0), (0, 8, 2))
    ),
    "reverse": lambda b, y: b.add(y, b.reverse(y, (0,))),
    "transpose": lambda b, y: b.add(b.reshape(b.transpose(b.reshape(y, (2, 2)), (1, 0)), (4,)), y),
    "convert": lambda b, y: b.add(b.convert(b.convert(y, "f16"), "f32"), y),
    "dot": lambda b, y: b.add(y, b.reshape(b.dot(b.reshape(y, (2, 2)), b.reshape(y, (2, 2))), (4,))),
    "pad": lambda b, y: b.add(y, b.slice(b.pad(y, b.constant(0.0), (1, 1, 0)), (0, 4, 1))),
    "reduce": lambda b, y: b.add(y, b.broadcast(b.reduce(y, b.constant(0.0), (0,)), (4,), ())),
    "rsqrt": lambda b, y: b.multiply(b.elementwise("rsqrt", b.multiply(y, y)), y),
}
LINKS["update in place"] = lambda b, y: b.inferred(
    "dynamic-update-slice",
    (y, b.slice(b.multiply(y, y), (0, 2, 1)), b.reshape(b.slice(b.iota("s32", (4,), 0), (1, 2, 1)), ())),
)
LINKS["slice and concatenate"] = lambda b, y: b.concatenate([b.slice(y, (2, 4, 1)), b.slice(b.add(y, y), (0, 2, 1))], 0)
LINKS["diamond"] = lambda b, y: b.multiply(
    b.add(b.elementwise("sine", y), b.elementwise("cosine", y)), b.subtract(b.elementwise("sine", y), y)
)
LINKS["moves"] = lambda b, y: b.reshape(b.transpose(b.reshape(b.reverse(y, (0,)), (2, 2)), (1, 0)), (4,))
LINKS["outer"] = lambda b, y: b.reduce(
    b.multiply(b.broadcast(y, (4, 4), (0,)), b.broadcast(y, (4, 4), (1,))), b.constant(0.0), (0,)
)
LINKS["tuple"] = lambda b, y: b.add(*(b.get_tuple_element(b.tuple(y, b.multiply(y, y)), k) for k in (0, 1)))
LINKS["call"] = lambda b, y: b.add(b.call(_doubled(), y), b.call(_doubled(), b.multiply(y, y)))


def _doubled() -> Computation:
    b = Builder("doubled")
    x = b.parameter("f32", (4,))
    return b.build(b.add(x, b.multiply(x, x)))


def _loop(b: Builder, y: Instruction) -> Instruction:
    state = TupleShape((Shape("f32", (4,)),))
    c, body = Builder("condition"), Builder("body")
    first = c.reshape(c.slice(c.get_tuple_element(c.parameter_of(state), 0), (0, 1, 1)), ())
    x = body.get_tuple_element(body.parameter_of(state), 0)
    called = (body.build(body.tuple(body.add(x, x))), c.build(c.compare(first, c.constant(9.0), "LT")))
    return b.add(y, b.get_tuple_element(b.inferred("while", (b.tuple(y),), called), 0))


def _branch(b: Builder, y: Instruction) -> Instruction:
    one, other = Builder("one"), Builder("other")
    x, z = one.parameter("f32", (4,)), other.parameter("f32", (4,))
    called = (one.build(one.multiply(x, x)), other.build(other.elementwise("tanh", z)))
    predicate = b.compare(b.reshape(b.slice(y, (0, 1, 1)), ()), b.constant(1.0), "LT")
    return b.add(y, b.inferred("conditional", (predicate, y, y), called))


LINKS["while"], LINKS["conditional"] = _loop, _branch
Wide = Callable[[Builder, list[Instruction]], Instruction]
# One instruction with as many operands as a parameter has slices, or as many instructions side by side.
WIDE: dict[str, Wide] = {
    "concatenate": lambda b, parts: b.concatenate(parts, 0),
    "concatenate backwards": lambda b, parts: b.concatenate(parts[::-1], 0),
    "concatenate results": lambda b, parts: b.concatenate([b.elementwise("sine", part) for part in parts], 0),
    "concatenate one": lambda b, parts: b.concatenate([parts[1]] * len(parts), 0),
    "read a concatenation": lambda b, parts: b.elementwise("sine", b.concatenate(parts[::-1], 0)),
    "tuple": lambda b, parts: b.tuple(*(b.elementwise("sine", part) for part in parts)),
    "sum": lambda b, parts: reduce(b.add, parts),
    "rows": lambda b, parts: b.tuple(*(b.reduce(b.multiply(each, each), b.constant(0.0), (0,)) for each in parts)),
    "updates": lambda b, parts: reduce(
        lambda y, k: b.inferred("dynamic-update-slice", (y, parts[k], b.constant(k, "s32"))),
        range(len(parts)),
        b.parameter("f32", (len(parts),)),
    ),
    "pads": lambda b, parts: reduce(lambda y, part: b.pad(y, b.reshape(part, ()), (0, 1)), parts),
    "concatenations": lambda b, parts: reduce(lambda y, part: b.concatenate([y, part], 0), parts),
    "products": lambda b, parts: b.tuple(*(b.dot(b.reshape(p, (1, 1)), b.reshape(p, (1, 1))) for p in parts)),
    "users of one": lambda b, parts: reduce(b.add, (b.multiply(parts[0], part) for part in parts)),
}
MANY = 1000
"""Number of calls of a function below which its growth is not tested."""


def chain(link: Link, length: int) -> Module:
    builder = Builder()
    y = builder.parameter("f32", (4,))
    for _ in range(length):
        y = link(builder, y)
    return builder.module(builder.tuple(y))


def wide(make: Wide, count: int) -> Module:
    builder = Builder()
    x = builder.parameter("f32", (count,))
    result = make(builder, [builder.slice(x, (k, k + 1, 1)) for k in range(count)])
    return builder.module(result if result.opcode == "tuple" else builder.tuple(result))


def calls(module: Module) -> Counter[str]:
    """Number of calls of each function of the engine while a module becomes a program."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ENGINE):
            found[f"{frame.f_code.co_filename[len(ENGINE) :]}:{frame.f_code.co_qualname}"] += 1

    outer = sys.getprofile()
    sys.setprofile(count)
    try:
        build_program(module, ["feed"] * len(module.entry.parameters), {})
    finally:
        sys.setprofile(outer)
    return found


@pytest.mark.parametrize("name", sorted(LINKS.keys() - {"while"}))  # a loop is compared with all others
def test_calls_grow_as_chains_do(name: str) -> None:
    short, long = calls(chain(LINKS[name], 32)), calls(chain(LINKS[name], 128))
    grown = {each: (short[each], n) for each, n in long.items() if n > MANY and n > 10 * max(short[each], 1)}
    assert not grown


@pytest.mark.parametrize("name", WIDE)
def test_calls_grow_as_operands_do(name: str) -> None:
    short, long = calls(wide(WIDE[name], 32)), calls(wide(WIDE[name], 128))
    grown = {each: (short[each], n) for each, n in long.items() if n > MANY and n > 10 * max(short[each], 1)}
    assert not grown


@pytest.mark.parametrize("name", LINKS)
def test_walks_do_not_recurse_along_chains(name: str) -> None:
    module = chain(LINKS[name], 150)
    build_program(chain(LINKS[name], 2), ["feed"], {})  # imports take more levels of recursion
    before, depth = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(depth + 120)
    try:
        encode_program(build_program(module, ["feed"], {}))
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("name", ["silu", "diamond", "power", "tanh"])
def test_codelets_of_long_chains_are_short_and_alike(name: str) -> None:
    program = build_program(chain(LINKS[name], 600), ["feed"], {})
    nests = [each.work.nest for each in program.compute_sets if isinstance(each.work, FusedLoop)]
    lengths = [sum(OPCODES[n.operation.opcode].length for n in nest.nodes if isinstance(n, Apply)) for nest in nests]
    assert len(lengths) > 5 and max(lengths) <= MOST_CODE
    assert len(set(nests)) <= 4, "chunks of a chain have the same code, so it is compiled once"
