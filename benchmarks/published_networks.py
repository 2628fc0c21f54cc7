"""Networks of images of published whole models. Each layer's name has the number of its block."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

GROUP_NET_B4 = ((1, 3, 1, 24, 2), (4, 3, 2, 32, 4), (4, 5, 2, 56, 4), (4, 3, 2, 112, 6), (4, 5, 1, 160, 6))
GROUP_NET_B4 += ((4, 5, 2, 272, 8), (4, 3, 1, 448, 2))
"""Expand ratio, taps, stride, features and repeats of each block of EfficientNet-B4 with groups of 16."""


def group_net_b4() -> keras.Model:
    """EfficientNet-B4 with convolutions in groups of 16 features where the original has depthwise ones."""

    def unit(x: Any, features: int, taps: int, stride: int, name: str, group: int = 0, act: bool = True) -> Any:
        groups = features // group if group else 1
        x = layers.Conv2D(features, taps, stride, "same", groups=groups, use_bias=False, name=f"{name}_convolution")(x)
        x = layers.BatchNormalization(name=f"{name}_norm")(x)
        return layers.Activation("silu", name=f"{name}_silu")(x) if act else x

    inputs = keras.Input((380, 380, 3))
    x = unit(inputs, 48, 3, 2, "block0_stem")
    for number, (ratio, taps, stride, features, repeats) in enumerate(GROUP_NET_B4, 1):
        for repeat in range(repeats):
            name, entry, wide = f"block{number}{chr(97 + repeat)}", x, x.shape[-1] * ratio
            y = unit(x, wide, 1, 1, f"{name}_expand") if ratio > 1 else x
            y = unit(y, wide, taps, 1 if repeat else stride, f"{name}_groups", 16)
            squeezed = layers.GlobalAveragePooling2D(keepdims=True, name=f"{name}_squeeze")(y)
            squeezed = layers.Conv2D(max(1, entry.shape[-1] // 4), 1, activation="silu", name=f"{name}_reduce")(
                squeezed
            )
            gate = layers.Conv2D(wide, 1, activation="sigmoid", name=f"{name}_gate")(squeezed)
            x = unit(layers.Multiply(name=f"{name}_excite")([y, gate]), features, 1, 1, f"{name}_project", act=False)
            x = layers.Add(name=f"{name}_add")([x, entry]) if repeat else x
    x = layers.GlobalAveragePooling2D(name="block8_pool")(unit(x, 1792, 1, 1, "block8_head"))
    return keras.Model(inputs, layers.Dense(1000, name="block8_dense")(x))


def resnext101() -> keras.Model:
    """ResNeXt-101 of 32 groups, 4 features each in the first blocks."""

    def unit(x: Any, features: int, taps: int, stride: int, name: str, groups: int = 1, act: bool = True) -> Any:
        x = layers.Conv2D(features, taps, stride, "same", groups=groups, use_bias=False, name=f"{name}_convolution")(x)
        x = layers.BatchNormalization(name=f"{name}_norm")(x)
        return layers.Activation("relu", name=f"{name}_relu")(x) if act else x

    inputs = keras.Input((224, 224, 3))
    x = unit(inputs, 64, 7, 2, "block0_stem")
    x, number = layers.MaxPooling2D(3, 2, "same", name="block0_pool")(x), 0
    for stage, repeats in enumerate((3, 4, 23, 3)):
        for repeat in range(repeats):
            number, wide, stride = number + 1, 128 * 2**stage, 2 if stage and not repeat else 1
            name, entry = f"block{number}", x
            y = unit(x, wide, 1, 1, f"{name}_reduce")
            y = unit(unit(y, wide, 3, stride, f"{name}_groups", 32), 2 * wide, 1, 1, f"{name}_expand", act=False)
            entry = entry if repeat else unit(x, 2 * wide, 1, stride, f"{name}_shortcut", act=False)
            x = layers.Activation("relu", name=f"{name}_out")(layers.Add(name=f"{name}_add")([y, entry]))
    x = layers.GlobalAveragePooling2D(name=f"block{number + 1}_pool")(x)
    return keras.Model(inputs, layers.Dense(1000, name=f"block{number + 1}_dense")(x))


def unet(size: int) -> keras.Model:
    """U-Net of 64 to 1,024 features for grey images and two classes."""

    def pair(x: Any, features: int, name: str) -> Any:
        for each in "ab":
            x = layers.Conv2D(features, 3, 1, "same", activation="relu", name=f"{name}_{each}")(x)
        return x

    inputs = x = keras.Input((size, size, 1))
    kept = []
    for depth in range(4):
        kept.append(pair(x, 64 * 2**depth, f"block{depth}_down"))
        x = layers.MaxPooling2D(2, name=f"block{depth}_pool")(kept[-1])
    x = layers.Dropout(0.5, name="block4_dropout")(pair(x, 1024, "block4"))
    for number, depth in enumerate(reversed(range(4)), 5):
        x = layers.Conv2DTranspose(64 * 2**depth, 2, 2, name=f"block{number}_up")(x)
        x = pair(layers.Concatenate(name=f"block{number}_join")([kept[depth], x]), 64 * 2**depth, f"block{number}_both")
    return keras.Model(inputs, layers.Conv2D(2, 1, name="block9_classes")(x))


class Windows(layers.Layer):
    """The windows of 7 x 7 positions of a field as sequences; the field is first rolled by `shift`."""

    def __init__(self, shift: int, **options: Any) -> None:
        super().__init__(**options)
        self.shift = shift

    def call(self, x: Any) -> Any:
        rows, columns, width = x.shape[1:]
        x = keras.ops.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        x = keras.ops.reshape(x, (-1, rows // 7, 7, columns // 7, 7, width))
        return keras.ops.reshape(keras.ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, 49, width))


class Field(layers.Layer):
    """The field of `size` x `size` positions that Windows has cut."""

    def __init__(self, size: int, shift: int, **options: Any) -> None:
        super().__init__(**options)
        self.size, self.shift = size, shift

    def call(self, x: Any) -> Any:
        number, width = self.size // 7, x.shape[-1]
        x = keras.ops.transpose(keras.ops.reshape(x, (-1, number, number, 7, 7, width)), (0, 1, 3, 2, 4, 5))
        x = keras.ops.reshape(x, (-1, self.size, self.size, width))
        return keras.ops.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class Merged(layers.Layer):
    """Each 2 x 2 positions of a field as one, with all their features."""

    def call(self, x: Any) -> Any:
        rows, columns, width = x.shape[1:]
        x = keras.ops.reshape(x, (-1, rows // 2, 2, columns // 2, 2, width))
        return keras.ops.reshape(keras.ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, rows // 2, columns // 2, 4 * width))


class WindowAttention(layers.Layer):
    """Attention in windows of 7 x 7 positions, with biases of relative positions and masks of rolled windows."""

    def __init__(self, heads: int, windows: int, shift: int, **options: Any) -> None:
        super().__init__(**options)
        self.heads, self.windows, self.shift = heads, windows, shift

    def build(self, shape: tuple[int, ...]) -> None:
        self.mixed, self.out = layers.Dense(3 * shape[-1]), layers.Dense(shape[-1])
        self.mixed.build(shape)
        self.out.build(shape)
        self.biases = self.add_weight((13 * 13, self.heads), "zeros", name="biases")

    def call(self, x: Any) -> Any:
        width = x.shape[-1] // self.heads
        rows = keras.ops.reshape(self.mixed(x), (-1, 49, 3, self.heads, width))
        query, key, value = (keras.ops.transpose(rows[:, :, each], (0, 2, 1, 3)) for each in range(3))
        products = keras.ops.matmul(query * width**-0.5, keras.ops.transpose(key, (0, 1, 3, 2)))
        biases = keras.ops.reshape(keras.ops.take(self.biases, relative_positions(), 0), (49, 49, self.heads))
        products = products + keras.ops.transpose(biases, (2, 0, 1))
        if self.shift:
            apart = keras.ops.cast(rolled_masks(self.windows), products.dtype)[:, None]
            products = keras.ops.reshape(products, (-1, self.windows**2, self.heads, 49, 49)) + apart
            products = keras.ops.reshape(products, (-1, self.heads, 49, 49))
        mixed = keras.ops.matmul(keras.ops.softmax(products), value)
        return self.out(keras.ops.reshape(keras.ops.transpose(mixed, (0, 2, 1, 3)), (-1, 49, x.shape[-1])))


def relative_positions() -> np.ndarray:
    """The row of a window's biases for each pair of its 49 positions: int32 (2401,)."""
    places = np.stack(np.divmod(np.arange(49), 7))
    apart = places[:, :, None] - places[:, None] + 6
    return (13 * apart[0] + apart[1]).reshape(-1).astype("int32")


def rolled_masks(windows: int) -> np.ndarray:
    """-100 for pairs of positions that were not neighbours before the roll: float32 (windows ** 2, 49, 49)."""
    part = np.digitize(np.arange(7 * windows), (7 * windows - 7, 7 * windows - 3))
    field = (3 * part[:, None] + part).reshape(windows, 7, windows, 7).transpose(0, 2, 1, 3).reshape(-1, 49)
    return np.where(field[:, None] == field[:, :, None], 0, -100).astype("float32")


def swin_tiny() -> keras.Model:
    """Swin-Tiny for 224 x 224 pixels, with stochastic depth of up to 20 %."""
    inputs = keras.Input((224, 224, 3))
    x = layers.LayerNormalization(name="block0_norm")(layers.Conv2D(96, 4, 4, name="block0_patches")(inputs))
    number = 0
    for stage, (depth, heads) in enumerate(((2, 3), (2, 6), (6, 12), (2, 24))):
        size, width = 56 // 2**stage, 96 * 2**stage
        for repeat in range(depth):
            number += 1
            name, shift, rate = f"block{number}", 3 * (repeat % 2) * (size > 7), (number - 1) / 55
            y = Windows(shift, name=f"{name}_windows")(layers.LayerNormalization(name=f"{name}_norm")(x))
            y = WindowAttention(heads, size // 7, shift, name=f"{name}_attention")(y)
            y = Field(size, shift, name=f"{name}_field")(y)
            x = layers.Add(name=f"{name}_add")([x, layers.Dropout(rate, (None, 1, 1, 1), name=f"{name}_path")(y)])
            y = layers.LayerNormalization(name=f"{name}_second_norm")(x)
            y = layers.Dense(4 * width, "gelu", name=f"{name}_wide")(y)
            y = layers.Dense(width, name=f"{name}_narrow")(y)
            x = layers.Add(name=f"{name}_second_add")(
                [x, layers.Dropout(rate, (None, 1, 1, 1), name=f"{name}_second_path")(y)]
            )
        if stage < 3:
            y = layers.LayerNormalization(name=f"{name}_merged_norm")(Merged(name=f"{name}_merged")(x))
            x = layers.Dense(2 * width, use_bias=False, name=f"{name}_halved")(y)
    x = layers.LayerNormalization(name=f"block{number + 1}_norm")(x)
    x = layers.GlobalAveragePooling2D(name=f"block{number + 1}_pool")(x)
    return keras.Model(inputs, layers.Dense(1000, name=f"block{number + 1}_dense")(x))
