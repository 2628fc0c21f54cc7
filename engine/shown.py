"""Objects that prompts and notebooks show as a table."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

_drawing: list[Callable[[Any], str]] = []


def draw_with(draw: Callable[[Any], str]) -> None:
    """Registers a function that returns the HTML of an object's pictures for notebooks, empty if it has none."""
    _drawing.append(draw)


class Shown:
    """An object whose `repr` is the text of `table()`; notebooks show it below pictures, if there are any."""

    __slots__ = ()

    def table(self) -> str:
        """The object as a short table, at most 88 characters wide."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return "".join(draw(self) for draw in _drawing) + preformatted(self.table())


def preformatted(text: str) -> str:
    """Text as an HTML element that keeps its columns."""
    return f"<pre>{escape(text)}</pre>"
