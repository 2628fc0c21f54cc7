"""Objects that prompts and notebooks show as a table."""

from __future__ import annotations

from html import escape


class Shown:
    """`repr` is the text of `table()`; notebooks show the same in a monospaced font."""

    __slots__ = ()

    def table(self) -> str:
        """The object as a short table, at most 88 characters wide."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return preformatted(self.table())


def preformatted(text: str) -> str:
    """Text as an HTML element that keeps its columns."""
    return f"<pre>{escape(text)}</pre>"
