"""Name scopes that carry the number of a stage into every operation of a step, forward and gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from engine.ir.op_names import STAGE, in_gradient_scope
from keras_ext.pipelining.graphs import Where
from keras_ext.pipelining.stage import refusing_scopes

IN_A_LAYER = (
    "Expected PipelineStage scopes around calls of layers, not in them. A layer is in one stage as a whole, but for "
    "models. Open scopes in the call of the model that is fitted, or of a model inside it."
)


class StageScopes:
    """The scopes of one run of a model's graph; re-entering one gives the same scope, not a numbered one."""

    def __init__(self) -> None:
        self._entered: dict[tuple[str, int], str] = {}

    def called_in(self, where: Where, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `call` of a layer to run in its stage or context."""

        def called(*arguments: object, **named: object) -> Any:
            with self._stage(where) if isinstance(where, int) else where():
                return call(*arguments, **named)

        return called

    @contextlib.contextmanager
    def _stage(self, stage: int) -> Iterator[None]:
        """Puts the stage into the names of operations that are created while the context is open."""
        scope = tf.get_current_name_scope()
        key = (scope, stage)
        with tf.name_scope(self._entered.get(key) or _name(scope, stage)) as entered, refusing_scopes(IN_A_LAYER):
            self._entered[key] = entered
            yield


def _name(scope: str, stage: int) -> str:
    """The name of a new scope inside a model's scope, or beside it if the model has a name of backward passes."""
    *outer, model = scope.split("/")
    return "/".join([*outer, f"{STAGE}{stage}", ""]) if in_gradient_scope(model) else f"{STAGE}{stage}"
