"""Declarations of a user's vertex on its arrays, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from engine.errors import VertexError

Split = Literal["elementwise", "rows", "whole", "reduction"]
SPLITS = ("elementwise", "rows", "whole", "reduction")


class Declaration:
    """A function of slices, the names and splits of its inputs and outputs, and their relation to each other."""

    def __init__(
        self,
        function: Callable[..., None],
        split: Split | Mapping[str, Split],
        outputs: Callable[..., Any] | None,
        cycles: Callable[..., int] | None,
        reassociate: bool,
    ) -> None:
        self.name, self.function, self.cycles, self.reassociate = function.__name__, function, cycles, reassociate
        code = function.__code__
        self.title = f"vertex {self.name!r} ({code.co_filename}, line {code.co_firstlineno})"
        self.names = parameters(function)
        count = len(self.names) - 1 if outputs is None else len(parameters(outputs))
        if not 0 < count < len(self.names):
            raise self.error(
                f"parameters for the inputs, which `outputs` takes too, then one for each output. Received: "
                f"({', '.join(self.names)}), {count} of them inputs"
            )
        self.inputs, self.outputs = self.names[:count], self.names[count:]
        self.outputs_of = outputs or (lambda *inputs: [inputs[0]])
        self.splits = self._splits(split)

    def error(self, expected: str) -> VertexError:
        """A VertexError that names this vertex."""
        return VertexError(f"Expected {self.title} to have {expected}.")

    def _splits(self, split: Split | Mapping[str, Split]) -> list[Split]:
        """The split of each parameter. Raises VertexError for one that is unknown, missing or not possible."""
        if isinstance(split, Mapping) and set(split) != set(self.names):
            raise self.error(f"a split of each of ({', '.join(self.names)}). Received: splits of ({', '.join(split)})")
        found: list[Split] = [split[name] if isinstance(split, Mapping) else split for name in self.names]
        for name, each in zip(self.names, found, strict=True):
            if each not in SPLITS or each == ("whole" if name in self.outputs else "reduction"):
                allowed = [s for s in SPLITS if s != ("whole" if name in self.outputs else "reduction")]
                raise self.error(f"one of {', '.join(map(repr, allowed))} as split of {name!r}. Received: {each!r}")
        if len({"elementwise", "rows"} & set(found)) != 1:
            raise self.error(f"arrays that are split, all of them 'elementwise' or all by 'rows'. Received: {split!r}")
        return found


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(function).parameters)
