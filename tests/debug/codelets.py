"""Codelets that do one thing on float64 arrays, right or wrong."""

from __future__ import annotations

from engine.codelets.language.build import codelet
from engine.codelets.language.memory import load_f64, load_i64, store_f64, store_i64


@codelet
def fill(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[unit] = unit. Parameters: target."""
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, float(unit))


@codelet
def move(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[unit] = source[unit + by]. Parameters: target, source, by."""
    by = load_i64(parameters + 16)
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, load_f64(load_i64(parameters + 8) + 8 * (unit + by)))


@codelet
def count_up(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[0] = units so far, counted by all. Parameters: target."""
    target = load_i64(parameters)
    for _ in range(lo, hi):
        store_f64(target, load_f64(target) + 1.0)


@codelet
def spoil_scratch(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes a word of scratch. Parameters: target (which gets zeros), the word's number."""
    store_i64(scratch + 8 * load_i64(parameters + 8), 7)
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, 0.0)


@codelet
def read_scratch(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """target[unit] = a word of scratch. Parameters: target, the word's number."""
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, load_f64(scratch + 8 * load_i64(parameters + 8)))


@codelet
def is_small(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes nothing, so its result stays unwritten."""


@codelet
def spoil_pointed(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes where its second parameter points. Parameters: target (which gets zeros), an address."""
    store_i64(load_i64(parameters + 8), 7)
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, 0.0)


@codelet
def spoil_parameters(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes its second parameter. Parameters: target (which gets zeros), a number."""
    store_i64(parameters + 8, 7)
    for unit in range(lo, hi):
        store_f64(load_i64(parameters) + 8 * unit, 0.0)
