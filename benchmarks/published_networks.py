"""Convolutional networks of published whole models. Each layer's name has the number of its block."""

from __future__ import annotations

from typing import Any

import keras
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
