"""The options of an IPU system: the root of the tree."""

from __future__ import annotations

import textwrap
import typing

from ipu._internal.config.category import Category, option
from ipu._internal.config.compilation_tree import (
    Convolutions,
    MatMuls,
    Norms,
    Optimizations,
    Pooling,
    Scheduling,
    Slices,
)
from ipu._internal.config.device_tree import DeviceConnection, Experimental, FloatingPointBehaviour, IOTiles, IPUModel
from ipu._internal.config.effects import EFFECTS
from ipu._internal.config.enumerations import SelectionOrder

# The long form, because AttributeMetadata.type shows it as the documentation prints it.
Numbers = typing.Union[int, typing.List[int], typing.Tuple[int, ...]]  # noqa: UP006, UP007


class OptionTree(Category):
    """All options, documented in their declarations."""

    allow_recompute: bool = option(
        False,
        "Whether to recompute instructions of the forward pass in the backward pass instead of keeping their "
        "results: less memory, more computation. Stateful operations are not recomputed.",
    )
    selection_order: SelectionOrder = option(
        SelectionOrder.AUTO, "The order in which IPUs are mapped to the shards of a device."
    )
    serialization_output_folder: str = option(
        "", "Directory in which compiled programs are saved; '' (default) saves none."
    )
    compilation_poplar_options: dict = option({}, "Poplar compilation options of the session.")
    gcl_poplar_options: dict = option(
        {}, "Options of the Graphcore Communication Library, applied to every collective operation."
    )
    auto_select_ipus: Numbers = option(
        [],
        "The number of IPUs of each TensorFlow device: 1 makes one device, /device:IPU:0, with one IPU; [2, "
        "4] makes /device:IPU:0 with two IPUs and /device:IPU:1 with four.",
    )
    select_ipus: Numbers = option(
        [],
        "The configuration of each TensorFlow device, by its Id in the listing of `gc-info -l` for 16 IPUs: "
        "0 to 15 are single IPUs, 16 to 23 have two, 24 to 27 four, 28 and 29 eight, and 30 has all sixteen.",
    )
    convolutions: Convolutions
    device_connection: DeviceConnection
    experimental: Experimental
    floating_point_behaviour: FloatingPointBehaviour
    io_tiles: IOTiles
    ipu_model: IPUModel
    matmuls: MatMuls
    norms: Norms
    optimizations: Optimizations
    pooling: Pooling
    scheduling: Scheduling
    slices: Slices

    def __init__(self) -> None:
        super().__init__()


def document(config: OptionTree) -> str:
    """One entry for each option of a configuration: full name, type, default, documentation, and its effect here."""
    entries = []
    for name in config.to_dict():
        metadata = config.get_attribute_metadata(name)
        text = f"{metadata.__doc__} Here it {EFFECTS[name]}."
        text = textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")
        entries.append(f"{name}: {metadata.type} = {metadata.default!r}\n{text}")
    return "\n\n".join(entries)
