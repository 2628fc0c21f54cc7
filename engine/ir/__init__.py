"""The intermediate representation: HLO's semantics, HLO's names."""

from engine.ir.attributes import (
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    PaddingDimension,
    ScatterDimensionNumbers,
    SliceDimension,
    Window,
    WindowDimension,
)
from engine.ir.module import Computation, Instruction, Module, topological
from engine.ir.shape import AnyShape, Shape, TupleShape, shape_of

__all__ = [
    "AnyShape",
    "Computation",
    "ConvolutionDimensionNumbers",
    "DotDimensionNumbers",
    "GatherDimensionNumbers",
    "Instruction",
    "Module",
    "PaddingDimension",
    "ScatterDimensionNumbers",
    "Shape",
    "SliceDimension",
    "TupleShape",
    "Window",
    "WindowDimension",
    "shape_of",
    "topological",
]
