"""Options of Poplar's libraries for single parts of a pipeline: PipelineStageOptions, as a cost report takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.frozen import frozen

if TYPE_CHECKING:
    from engine.partition.schedule import Kind

Flags = tuple[tuple[str, str], ...]
"""Option flags with their values, as Poplar takes both: text."""


@frozen
class LibraryOptions:
    """The option flags of one part: for its convolutions, its matrix products and its slices."""

    convolution: Flags = ()
    matmul: Flags = ()
    slices: Flags = ()


@frozen
class StageOptions:
    """The options of a pipeline's parts, which override the whole program's: one for each stage, or none.

    `update` holds for all weight updates. A recomputation that is a row of the schedule has the options of the forward
    part that it repeats; a recomputation inside a backward part has the options of the backward part.
    """

    forward: tuple[LibraryOptions, ...] = ()
    backward: tuple[LibraryOptions, ...] = ()
    update: LibraryOptions = LibraryOptions()

    def of(self, kind: Kind, stage: int) -> LibraryOptions:
        """The options of a part."""
        if kind == "update":
            return self.update
        of_stages = self.backward if kind == "backward" else self.forward
        return of_stages[stage] if of_stages else LibraryOptions()


def stage_options_from(plain: Mapping[str, Any]) -> StageOptions:
    """The options from a plain mapping, as from `dataclasses.asdict`, also after a round trip through JSON."""
    return StageOptions(
        tuple(library_options_from(each) for each in plain["forward"]),
        tuple(library_options_from(each) for each in plain["backward"]),
        library_options_from(plain["update"]),
    )


def library_options_from(plain: Mapping[str, Sequence[Sequence[str]]]) -> LibraryOptions:
    """The options of one part from a plain mapping of the same form."""
    return LibraryOptions(**{name: tuple((flag, value) for flag, value in flags) for name, flags in plain.items()})
