"""Vertices of poplibs that stand for several operations: activation functions and their gradients.

XLA writes such a function as its arithmetic, which passes rewrite. So terms are compared by value: a term is a known
function of another if it depends on no third one and has the function's values at many points.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import pi, sqrt

import numpy as np

from engine.frozen import frozen
from engine.ops.apply import UFUNCS
from engine.ops.unary import TRANSCENDENTAL

SAMPLES = np.concatenate((np.linspace(-7.5, 7.5, 61), [-1.0, -0.5, 0.5, 1.0]))
"""Arguments at which functions are compared: not at 0, where some have a corner."""
SAMPLES = SAMPLES[SAMPLES != 0]
TOLERANCE = 2e-3
"""Largest difference, relative for values above 1: more than gelu's two forms differ. Chosen by hand."""
MOST_OPERATIONS = 120
"""Most operations that are compared with a function. Chosen by hand."""
Values = np.ndarray | float
_CDF = 0.5 * (1 + TRANSCENDENTAL["erf"](SAMPLES / sqrt(2)))
_LOGISTIC = TRANSCENDENTAL["logistic"](SAMPLES)
FUNCTIONS: dict[str, np.ndarray] = {
    "gelu": SAMPLES * _CDF,
    "gelu-gradient": _CDF + SAMPLES * np.exp(-(SAMPLES**2) / 2) / sqrt(2 * pi),
    "swish": SAMPLES * _LOGISTIC,
    "swish-gradient": _LOGISTIC * (1 + SAMPLES * (1 - _LOGISTIC)),
    "tanh": np.tanh(SAMPLES),
    "logistic": _LOGISTIC,
    "relu": np.maximum(SAMPLES, 0),
    "tanh-gradient": 1 - SAMPLES**2,
    "logistic-gradient": SAMPLES * (1 - SAMPLES),
}
"""The values of each function at SAMPLES, by the name of its row in the table of cycles. The arguments of the gradients
of tanh and of the logistic function are the function's values."""
GRADIENTS = frozenset(name for name in FUNCTIONS if name.endswith("-gradient"))
"""Functions whose vertices also multiply by the gradient of the result."""
OPERATIONS: dict[str, Callable[..., Values]] = {
    **{opcode: UFUNCS[opcode] for opcode in ("add", "maximum", "minimum", "multiply", "subtract")},
    **{opcode: TRANSCENDENTAL[opcode] for opcode in ("erf", "erfc", "exponential", "exponential-minus-one", "log")},
    **{opcode: TRANSCENDENTAL[opcode] for opcode in ("log-plus-one", "logistic", "rsqrt", "sqrt", "tanh")},
    **{"abs": np.abs, "convert": np.asarray, "divide": np.divide, "negate": np.negative, "power": np.power},
}
"""The operations of which a function may consist."""


@frozen
class Term:
    """A value of a fused loop: an operation on earlier terms, or without opcode a constant or an element of an array.

    `number` is the value of a constant, `access` the number of an array among the loop's operands, `direction` the
    direction of a comparison.
    """

    opcode: str
    element_type: str
    operand_types: tuple[str, ...] = ()
    operands: tuple[int, ...] = ()
    number: float | None = None
    access: int = -1
    direction: str = ""

    @property
    def is_float(self) -> bool:
        """Whether the term and its operands are real floats."""
        return all(kind.startswith(("f", "bf")) for kind in (self.element_type, *self.operand_types))


Terms = tuple[Term, ...]


@frozen
class Charged:
    """A term for which a chip has a vertex: the term's number, and the vertex, named by opcode or as a function."""

    term: int
    opcode: str
    operands: tuple[int, ...]


@lru_cache(maxsize=4096)
def charged(terms: Terms, results: tuple[int, ...]) -> tuple[Charged, ...]:
    """The vertices that compute the terms numbered `results`, in the order of the terms."""
    needed, found = set(results), []
    for number in reversed(range(len(terms))):
        if number in needed and terms[number].opcode:
            made = _gradient(terms, number) or _function(terms, number)
            made = made or Charged(number, terms[number].opcode, terms[number].operands)
            needed.update(made.operands)
            found.append(made)
        elif number in needed:
            needed.update(terms[number].operands)
    return tuple(reversed(found))


def _gradient(terms: Terms, number: int) -> Charged | None:
    """A gradient times the derivative of an activation, as one vertex."""
    term = terms[number]
    if term.opcode == "select":
        predicate, kept, other = term.operands
        compared = terms[predicate]
        if terms[other].number == 0 and compared.direction == "GT" and terms[compared.operands[1]].number == 0:
            return Charged(number, "relu-gradient", (compared.operands[0], kept))
    if term.opcode == "multiply":
        for derivative, gradient in (term.operands, term.operands[::-1]):
            inner = _function(terms, derivative)
            if inner and inner.opcode in GRADIENTS and gradient not in (derivative, *inner.operands):
                return Charged(number, inner.opcode, (gradient, *inner.operands))
        return _linear(terms, number)
    return _linear(terms, number) if term.opcode in ("add", "subtract") else None


def _linear(terms: Terms, root: int) -> Charged | None:
    """A derivative whose gradient is multiplied into each of its parts, as automatic differentiation writes it."""
    for inputs, cone in _cones(terms, root, 2):
        for gradient, source in (inputs, inputs[::-1]):
            found = _values(terms, {source: SAMPLES, gradient: 1.0}, cone)
            name = _named(found)
            if name in GRADIENTS and _close(_values(terms, {source: SAMPLES, gradient: -3.0}, cone), -3 * found):
                return Charged(root, name, (gradient, source))
    return None


def _function(terms: Terms, root: int) -> Charged | None:
    """The vertex of a term that equals one of FUNCTIONS of a single other term, the nearest one; None for others."""
    for (source,), cone in _cones(terms, root, 1):
        name = _named(_values(terms, {source: SAMPLES}, cone))
        if name:
            return Charged(root, name, (source,))
    return None


def _cones(terms: Terms, root: int, count: int) -> Iterator[tuple[list[int], list[int]]]:
    """The `count` terms on which a term depends, and the operations between, in order: the nearest such terms first."""
    pending, leaves, seen, cone, shown = [-root], list[int](), {root}, list[int](), 0
    while pending and len(cone) <= MOST_OPERATIONS and len(leaves) <= count:
        if len(pending) + len(leaves) == count and len(cone) > shown:
            shown = len(cone)
            yield [*(-each for each in pending), *leaves], cone[::-1]
        number = -heapq.heappop(pending)
        term = terms[number]
        if not term.is_float or term.opcode not in OPERATIONS:
            leaves.append(number)
            continue
        cone.append(number)
        for operand in term.operands:
            if operand not in seen and terms[operand].number is None:
                seen.add(operand)
                heapq.heappush(pending, -operand)


def _values(terms: Terms, given: Mapping[int, Values], cone: Sequence[int]) -> np.ndarray:
    """The values of the last term of a cone, from those of the terms on which it depends."""
    values = dict(given)
    with np.errstate(all="ignore"):
        for number in cone:
            operands = [values[o] if o in values else terms[o].number or 0.0 for o in terms[number].operands]
            values[number] = OPERATIONS[terms[number].opcode](*map(np.asarray, operands))
    return np.broadcast_to(values[cone[-1]], SAMPLES.shape)


def _named(found: np.ndarray) -> str:
    """The name of the function that has these values; "" if there is none."""
    return next((name for name, expected in FUNCTIONS.items() if _close(found, expected)), "")


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.all(np.abs(found - expected) <= TOLERANCE * np.maximum(1, np.abs(expected))))
