"""Codelets of the kinds that most models of images need, by name: pooling, its gradients, and convolutions."""

from __future__ import annotations

from engine.codelets.convolutions.cook_toom import WIDE_OUTPUTS
from engine.codelets.convolutions.overlap_add import overlap_add
from engine.codelets.convolutions.winograd import kernel_transform, product_of_tiles
from engine.codelets.convolutions.winograd_gradient import gradient_of_tiles, sums_of_taps
from engine.codelets.pooling.overlapping_pool_gradient import overlapping_pool_gradient
from engine.codelets.pooling.pool_gradient import pool_gradient
from engine.codelets.pooling.pool_windows import pool_windows
from engine.codelets.products.pack_panels import pack_panels

__all__ = ["pack_panels"]

GREATEST_OF_WINDOWS = pool_gradient("UGE", "f32")
"""The gradient of max pooling whose windows do not overlap, such as 2 x 2."""
OVERLAPPING_WINDOWS = pool_windows("maximum-number", "f32", 3, 2)
GREATEST_OF_OVERLAPPING_WINDOWS = overlapping_pool_gradient("UGE", "f32", 3, 2)
"""Max pooling of 3 x 3 with strides of 2, and its gradient."""
FEW_FEATURES = overlap_add("f32")
"""Convolutions of stride 1 with few output features."""
KERNELS, PRODUCTS = kernel_transform("f32", WIDE_OUTPUTS), product_of_tiles("f32", "f32", WIDE_OUTPUTS)
GRADIENTS, SUMS = gradient_of_tiles("f32", WIDE_OUTPUTS), sums_of_taps("f32", WIDE_OUTPUTS)
"""Convolutions of 3 x 3 taps, and their gradients by kernels."""
