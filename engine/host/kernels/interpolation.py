"""The codelet and parameter block of interpolated images."""

from __future__ import annotations

from engine.codelets.interpolation import Interpolation, interpolate, interpolation_scratch_bytes
from engine.codelets.language.record import block
from engine.host.encoded import Encoded
from engine.program.work.interpolation import InterpolationWork


def encoded_interpolation(work: InterpolationWork) -> Encoded:
    """The fields of `Interpolation`."""
    _, source_height, source_width, channels = work.source.shape.dimensions
    images, height, width, _ = work.target.shape.dimensions
    parameters = Interpolation(
        source=work.source.address,
        target=work.target.address,
        row_taps=work.rows.spans,
        row_weights=work.rows.weights,
        column_taps=work.columns.spans,
        column_weights=work.columns.weights,
        images=images,
        height=height,
        width=width,
        source_height=source_height,
        source_width=source_width,
        channels=channels,
        unit_rows=work.unit_rows,
    )
    return Encoded.of(interpolate, block(parameters), interpolation_scratch_bytes(source_width, channels))
