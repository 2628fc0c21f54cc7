"""The description of an exported program beside it in `assets/`, as JSON, for readers without TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import InvalidFile
from engine.ir.shape import NUMPY_TYPES
from engine.partition.stage_options import LibraryOptions, library_options_from
from engine.private_files import read_regular
from engine.whole_files import write_whole

FILE_NAME = "ipu_serving.json"
FORMAT = 1
MAXIMAL_BYTES = 16 << 20
STRING = "string"
NUMPY_DTYPES = {dtype.name: dtype for dtype in NUMPY_TYPES.values()}
"""NumPy's dtypes by name, as NumPy's own names do not have bfloat16."""


@dataclass(frozen=True)
class TensorManifest:
    """An input or an output: its name, its shape with the batch, and its dtype by NumPy's name, or "string"."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype of an array of numbers."""
        return NUMPY_DTYPES[self.dtype]


@dataclass(frozen=True)
class PipelineManifest:
    """The stages on a chip: the IPU of each, the schedule's name, and the library options of each."""

    device_mapping: tuple[int, ...]
    schedule: str
    poplar_options: tuple[LibraryOptions, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """Description of an exported directory.

    `inputs` and `outputs` are those of requests and responses; `program_inputs` and `program_outputs` those of the
    compiled program, which differ where steps run before or after it. `executable` is the name of a file in `assets/`.
    """

    executable: str
    iterations: int
    inputs: tuple[TensorManifest, ...]
    outputs: tuple[TensorManifest, ...]
    program_inputs: tuple[TensorManifest, ...]
    program_outputs: tuple[TensorManifest, ...]
    has_preprocessing: bool = False
    has_postprocessing: bool = False
    pipeline: PipelineManifest | None = None
    format: int = field(default=FORMAT)

    @property
    def batch_size(self) -> int | None:
        """The first dimension, if all tensors of the program, requests and responses share it; else None."""
        tensors = (*self.inputs, *self.outputs, *self.program_inputs, *self.program_outputs)
        sizes = {tensor.shape[0] if tensor.shape else None for tensor in tensors}
        return sizes.pop() if len(sizes) == 1 else None

    def write(self, assets: Path) -> None:
        """Writes the file into `assets`."""
        write_whole(assets / FILE_NAME, json.dumps(asdict(self), indent=1) + "\n")


def read_manifest(directory: Path) -> Manifest:
    """The description in `directory`/assets. Raises InvalidFile where it is missing or malformed."""
    path = directory / "assets" / FILE_NAME
    expected = f"Expected a SavedModel that ipu.serving has exported, with {path.relative_to(directory)}"
    try:
        raw = read_regular(path, MAXIMAL_BYTES)
    except OSError as error:
        raise InvalidFile(f"{expected}. Received: {directory}: {error.strerror or error}.") from error
    try:
        manifest = parsed_manifest(json.loads(raw))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidFile(f"{expected} as it was written. Received: {error!r}. Export the model again.") from error
    return manifest


def parsed_manifest(fields: dict[str, Any]) -> Manifest:
    """The description in JSON's objects. Raises ValueError, TypeError or KeyError for objects without one."""
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']}, where this version reads {FORMAT}")
    name = fields["executable"]
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} for the name of a file in assets")
    inputs, outputs, program_inputs, program_outputs = (
        tuple(_tensor(**each) for each in fields[key])
        for key in ("inputs", "outputs", "program_inputs", "program_outputs")
    )
    pipeline = fields["pipeline"]
    return Manifest(
        executable=name,
        iterations=int(fields["iterations"]),
        has_preprocessing=bool(fields["has_preprocessing"]),
        has_postprocessing=bool(fields["has_postprocessing"]),
        pipeline=pipeline and _pipeline(**pipeline),
        inputs=inputs,
        outputs=outputs,
        program_inputs=program_inputs,
        program_outputs=program_outputs,
    )


def _pipeline(device_mapping: list[int], schedule: str, poplar_options: Sequence[Any] = ()) -> PipelineManifest:
    return PipelineManifest(tuple(device_mapping), schedule, tuple(map(library_options_from, poplar_options)))


def _tensor(name: str, shape: list[int], dtype: str) -> TensorManifest:
    if not isinstance(name, str) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"a tensor {name!r} of shape {shape}")
    if dtype != STRING and dtype not in NUMPY_DTYPES:
        raise ValueError(f"a tensor {name!r} of dtype {dtype!r}")
    return TensorManifest(name, tuple(shape), dtype)
