"""PipelineStageOptions: options of Poplar's libraries in single stages of a pipeline, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import ConfigurationError
from engine.partition.stage_options import Flags, LibraryOptions, StageOptions
from ipu._internal.config.library_flags import CONVOLUTION, MATMUL, SLICE, LibraryFlags, check_flags
from ipu._internal.pipelining.errors import PipelineTypeError

FORWARD, BACKWARD = "forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"
UPDATE = "weight_update_poplar_options"


class PipelineStageOptions:
    """Options of the Poplar libraries in one stage, over those of IPUConfig (Python API, 18.14.6).

    They affect the plans of the stage's operations in the cost report, in cycles and in bytes per tile, but no results.
    `availableMemoryProportion` (above 0; 0.6 by default) and, for convolutions and matrix products, `partialsType`
    ("float" or "half") have an effect; docs/options.md lists the other known flags.

    Args:
        convolution_options: a dictionary of option flags for all convolutions of the stage.
        matmul_options: a dictionary of option flags for all matrix products of the stage.
        slice_options: a dictionary of option flags for all slices (embedding look-ups and updates) of the stage.

    Raises:
        TypeError: an argument is neither None nor a dictionary.
        ValueError: a library has no such flag; the message names the nearest that it has.
    """

    def __init__(
        self, convolution_options: object = None, matmul_options: object = None, slice_options: object = None
    ) -> None:
        self._convolution_options = _checked("convolution_options", convolution_options, CONVOLUTION)
        self._matmul_options = _checked("matmul_options", matmul_options, MATMUL)
        self._slice_options = _checked("slice_options", slice_options, SLICE)

    def __repr__(self) -> str:
        return (
            f"PipelineStageOptions(convolution_options={self._convolution_options}, "
            f"matmul_options={self._matmul_options}, slice_options={self._slice_options})"
        )


def _checked(name: str, value: object, library: LibraryFlags) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise PipelineTypeError(f"Expected {name} to be None or a dictionary of option flags. Received: {value!r}.")
    check_flags(name, value or {}, library)
    return dict(value or {})


def check_stage_options(name: str, options: object, stages: int) -> None:
    """Raises PipelineTypeError or ConfigurationError unless `options` is None or one PipelineStageOptions per stage."""
    if options is None:
        return
    if not isinstance(options, list | tuple):
        raise PipelineTypeError(f"Expected {name} to be a list or tuple. Received: {options!r}.")
    wrong = [element for element in options if not isinstance(element, PipelineStageOptions)]
    if wrong:
        raise PipelineTypeError(
            f"Expected all elements of {name} to be PipelineStageOptions. Received: {wrong[0]!r} of type "
            f"{type(wrong[0]).__name__}."
        )
    if len(options) != stages:
        raise ConfigurationError(
            f"Expected {name} to have one element for each of {stages} stages. Received: {len(options)}."
        )


def stage_options_of(arguments: Mapping[str, Any], stages: int | None = None) -> StageOptions:
    """The options among the arguments of `pipeline()`, by name; `stages` is None where their number is not known.

    Raises PipelineTypeError for other types, and ConfigurationError for another number of stages.
    """
    for name in (FORWARD, BACKWARD):
        given = arguments.get(name)
        known = len(given) if stages is None and isinstance(given, list | tuple) else stages or 0
        check_stage_options(name, given, known)
    update = arguments.get(UPDATE)
    check_stage_options(UPDATE, None if update is None else [update], 1)
    forward, backward = (tuple(map(library_options, arguments.get(name) or ())) for name in (FORWARD, BACKWARD))
    return StageOptions(forward, backward, LibraryOptions() if update is None else library_options(update))


def library_options(options: PipelineStageOptions) -> LibraryOptions:
    """The options for a cost report."""
    given = (options._convolution_options, options._matmul_options, options._slice_options)
    return LibraryOptions(*map(_as_text, given))


def _as_text(flags: Mapping[str, Any]) -> Flags:
    return tuple((flag, str(value)) for flag, value in flags.items())
