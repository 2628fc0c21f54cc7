"""Passes, lowering and program passes visit each instruction a bounded number of times, however often it is read."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import engine
from engine.compile import build_program
from engine.ir import Instruction, Module
from engine.ir.builder import Builder

ENGINE = str(Path(engine.__file__).parent)
Link = Callable[[Builder, Instruction], Instruction]
# Each reads its operand twice or more: a walk of operands that forgets what it has seen doubles with every link.
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
MANY = 1000
"""Calls of one function below which its growth is not looked at."""


def chain(link: Link, length: int) -> Module:
    builder = Builder()
    y = builder.parameter("f32", (4,))
    for _ in range(length):
        y = link(builder, y)
    return builder.module(builder.tuple(y))


def calls(module: Module) -> Counter[str]:
    """How often each function of the engine is called while a module becomes a program."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ENGINE):
            found[f"{frame.f_code.co_filename[len(ENGINE) :]}:{frame.f_code.co_qualname}"] += 1

    outer = sys.getprofile()
    sys.setprofile(count)
    try:
        build_program(module, ["feed"], {})
    finally:
        sys.setprofile(outer)
    return found


@pytest.mark.parametrize("name", LINKS)
def test_calls_grow_as_chains_do(name: str) -> None:
    short, long = calls(chain(LINKS[name], 32)), calls(chain(LINKS[name], 128))
    grown = {each: (short[each], n) for each, n in long.items() if n > MANY and n > 10 * max(short[each], 1)}
    assert not grown
