"""The pipelines of functions that run on the device: made when a function is compiled, and noted for those who look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.ir import Module
from engine.ir.device_operations import PIPELINE_TURN, target_of

if TYPE_CHECKING:
    from engine.partition.pipeline import Pipelined

latest: list[Pipelined] = []
"""Those of the function that was compiled last of all that have any, in the order in which it calls them."""


def with_traced_pipelines(module: Module) -> Module:
    """The module, its loops that were traced as pipelines made such.

    Raises as `engine.partition.traced_pipelines.with_pipelines`.
    """
    if not any(target_of(i) == PIPELINE_TURN for c in module.computations() for i in c.instructions):
        return module
    # The engine's passes load Numba, which takes long: not before there is a pipeline.
    from engine.partition.traced_pipelines import with_pipelines

    module, made = with_pipelines(module)
    latest[:] = made
    return module
