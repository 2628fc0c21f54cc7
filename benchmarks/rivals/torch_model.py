"""A Keras model as plain PyTorch: the same graph of `torch.nn` modules with the same weights, without Keras.

Tensors keep Keras' order of dimensions; for convolutions they are channels_last, which needs no copy.
"""

from __future__ import annotations

import math
import operator
import time
from functools import cache
from typing import Any

import keras
import torch
from keras import layers
from torch import fx, nn
from torch.nn import functional as F

from benchmarks.models import Positions, Sampled

ACTIVATIONS = {
    "linear": nn.Identity(),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "gelu": nn.GELU(),
    "silu": nn.SiLU(),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
}


def torch_model(model: keras.Model) -> fx.GraphModule:
    """The module of a model, which maps the inputs, in order, to a tuple of the output and the sum of added losses."""
    model = getattr(model, "_functional", model)
    root, graph = nn.ModuleDict(), fx.Graph()
    values = {id(x): graph.placeholder(f"x{at}") for at, x in enumerate(model.inputs)}
    losses: list[fx.Node] = []
    nodes = [node for depth in sorted(model._nodes_by_depth, reverse=True) for node in model._nodes_by_depth[depth]]
    for number, node in enumerate(node for node in nodes if not node.is_input):
        known = keras.tree.map_structure(
            lambda x: values[id(x)] if isinstance(x, keras.KerasTensor) else x,
            (list(node.arguments.args), dict(node.arguments.kwargs)),
        )
        name = f"{type(node.operation).__name__.lower()}_{number}"
        root[name] = converted(node.operation)
        value = graph.call_module(name, tuple(known[0]), {k: v for k, v in known[1].items() if k in PASSED})
        if isinstance(node.operation, Sampled):
            losses.append(graph.call_function(operator.getitem, (value, 1)))
        several = len(node.outputs) > 1 or isinstance(node.operation, Sampled)
        for at, output in enumerate(node.outputs):
            values[id(output)] = graph.call_function(operator.getitem, (value, at)) if several else value
    graph.output((values[id(model.outputs[0])], losses[0] if losses else 0.0))
    return fx.GraphModule(root, graph)


PASSED = ("initial_state",)


def converted(layer: Any) -> nn.Module:
    """The module of a layer or operation, with its weights; raises NotImplementedError if there is none."""
    for kind in type(layer).__mro__:
        if kind in MODULES:
            return MODULES[kind](layer)
    raise NotImplementedError(f"Expected a layer that has a PyTorch module here. Received: {layer!r}")


def parameter(variable: Any, *order: int) -> nn.Parameter:
    """A variable's value, with the dimensions in `order`."""
    value = torch.from_numpy(keras.ops.convert_to_numpy(variable).copy())
    return nn.Parameter(value.permute(order).contiguous() if order else value)


class Stateless(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


class Product(torch.autograd.Function):
    """x w^T + b and its gradients by oneDNN. PyTorch's own product calls MKL, half as fast on AMD's processors."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return by_onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        rows = gradients[0].flatten(0, -2)
        to_x = by_onednn(gradients[0], weight.t(), None) if ctx.needs_input_grad[0] else None
        return to_x, by_onednn(rows.t(), x.flatten(0, -2).t(), None), rows.sum(0)


def by_onednn(x: Any, weight: Any, bias: Any) -> Any:
    if torch.compiler.is_compiling():  # Inductor takes the operation of oneDNN for constant weights only
        return torch.ops.benchmarks.product(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


LIBRARY = torch.library.Library("benchmarks", "DEF")
LIBRARY.define("product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
LIBRARY.impl("product", lambda x, w, b: torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], ""), "CPU")
torch.library.register_fake("benchmarks::product", lambda x, w, b: x.new_empty(*x.shape[:-1], w.shape[0]), lib=LIBRARY)


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN's product takes less time here than PyTorch's own, by the least of some runs of each."""
    if not torch.backends.mkldnn.is_available():
        return False
    x, weight, bias = torch.rand(256, 512), torch.rand(512, 512), torch.rand(512)
    least = {by_onednn: math.inf, F.linear: math.inf}
    for _ in range(20):
        for product in least:
            start = time.perf_counter()
            product(x, weight, bias)
            least[product] = min(least[product], time.perf_counter() - start)
    return least[by_onednn] < 0.9 * least[F.linear]


def product(x: Any, weight: Any, bias: Any) -> Any:
    """Multiplies by oneDNN; for an ONNX file, which has no such operation, by `F.linear`."""
    return F.linear(x, weight, bias) if torch.onnx.is_in_onnx_export() else Product.apply(x, weight, bias)


class Dense(nn.Module):
    """A product of the last dimension."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weight = parameter(layer.kernel, 1, 0)
        self.bias = parameter(layer.bias)
        self.activation = ACTIVATIONS[layer.activation.__name__]
        self.linear = product if onednn_is_faster() else F.linear

    def forward(self, x: Any) -> Any:
        return self.activation(self.linear(x, self.weight, self.bias))


class Convolution(nn.Module):
    """Conv2D, DepthwiseConv2D and Conv2DTranspose."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.backward_data = isinstance(layer, layers.Conv2DTranspose)
        depthwise = isinstance(layer, layers.DepthwiseConv2D)
        order = (2, 3, 0, 1) if depthwise else (3, 2, 0, 1)
        weight = parameter(layer.kernel, *order)
        self.weight = nn.Parameter(weight.data.to(memory_format=torch.channels_last))
        self.bias = parameter(layer.bias) if layer.use_bias else None
        self.activation = ACTIVATIONS[layer.activation.__name__]
        self.groups = weight.shape[0] if depthwise else 1
        self.strides = layer.strides
        same = [(0, 0)] * 2
        if layer.padding == "same":
            sizes = zip(layer.input.shape[1:3], layer.kernel_size, layer.strides, strict=True)
            totals = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k, stride in sizes]
            same = [(total // 2, total - total // 2) for total in totals]
        even = all(low == high for low, high in same)
        self.padding = tuple(low for low, _ in same) if even else (0, 0)
        self.padded = None if even else [n for pair in reversed(same) for n in pair]

    def forward(self, x: Any) -> Any:
        x = x.permute(0, 3, 1, 2)
        if self.padded is not None:
            x = F.pad(x, self.padded)
        if self.backward_data:
            x = F.conv_transpose2d(x, self.weight, self.bias, self.strides)
        else:
            x = F.conv2d(x, self.weight, self.bias, self.strides, self.padding, 1, self.groups)
        return self.activation(x).permute(0, 2, 3, 1)


class BatchNormalization(nn.BatchNorm2d):
    """Batch normalization over all but the last dimension."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer.gamma.shape[0], layer.epsilon, 1 - layer.momentum)
        self.weight, self.bias = parameter(layer.gamma), parameter(layer.beta)
        self.running_mean, self.running_var = parameter(layer.moving_mean).data, parameter(layer.moving_variance).data

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def layer_normalization(layer: Any) -> nn.Module:
    made = nn.LayerNorm(layer.gamma.shape[0], layer.epsilon)
    made.weight, made.bias = parameter(layer.gamma), parameter(layer.beta)
    return made


class SelfAttention(nn.Module):
    """MultiHeadAttention(x, x): one product for queries, keys and values."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        parts = (layer.query_dense, layer.key_dense, layer.value_dense)
        self.heads = parts[0].kernel.shape[1]
        self.weight = nn.Parameter(torch.cat([parameter(each.kernel).flatten(1).T for each in parts]).contiguous())
        self.bias = nn.Parameter(torch.cat([parameter(each.bias).flatten() for each in parts]))
        self.out = nn.Parameter(parameter(layer.output_dense.kernel).data.flatten(0, 1).T.contiguous())
        self.out_bias = parameter(layer.output_dense.bias)
        self.linear = product if onednn_is_faster() else F.linear

    def forward(self, query: Any, value: Any) -> Any:
        parts = self.linear(query, self.weight, self.bias).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return self.linear(attended.transpose(1, 2).flatten(2), self.out, self.out_bias)


class Recurrent(nn.Module):
    """LSTM or GRU in one direction or both, as one module of PyTorch."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        both = isinstance(layer, layers.Bidirectional)
        parts = [layer.forward_layer, layer.backward_layer] if both else [layer]
        first = parts[0]
        kind = nn.LSTM if isinstance(first, layers.LSTM) else nn.GRU
        self.cells = kind(first.cell.kernel.shape[0], first.units, batch_first=True, bidirectional=both)
        self.sequences, self.state = first.return_sequences, first.return_state
        for part, suffix in zip(parts, ("", "_reverse"), strict=False):
            for name, value in self._weights(part.cell).items():
                setattr(self.cells, name + suffix, value)

    @staticmethod
    def _weights(cell: Any) -> dict[str, nn.Parameter]:
        names = "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"
        bias = parameter(cell.bias)
        values = [parameter(cell.kernel, 1, 0), parameter(cell.recurrent_kernel, 1, 0)]
        if bias.ndim == 1:  # Keras' LSTM has one bias
            values += [bias, nn.Parameter(torch.zeros_like(bias), requires_grad=False)]
            return dict(zip(names, values, strict=True))
        values += [nn.Parameter(bias[0].detach()), nn.Parameter(bias[1].detach())]
        gates = [list(value.detach().chunk(3)) for value in values]  # Keras: update, reset, new; PyTorch: reset first
        return {n: nn.Parameter(torch.cat([g[1], g[0], g[2]])) for n, g in zip(names, gates, strict=True)}

    def forward(self, x: Any, initial_state: Any = None) -> Any:
        state = None if initial_state is None else tuple(each[None] for each in initial_state)
        y, last = self.cells(x, state)
        hidden = last[0] if isinstance(last, tuple) else last
        if not self.sequences:
            y = hidden.transpose(0, 1).flatten(1)
        return (y, *(each[0] for each in last)) if self.state else y


class Sampling(nn.Module):
    """`models.Sampled`: samples, and the divergence as a loss."""

    def forward(self, inputs: Any) -> Any:
        mean, variance = inputs
        divergence = variance.exp() + mean.square() - 1 - variance
        noise = torch.randn_like(mean)
        return mean + (0.5 * variance).exp() * noise, 0.5 * divergence.sum(-1).mean() / 784


class Offset(nn.Module):
    """`models.Positions`: adds a table of learnt vectors."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.table = parameter(layer.table)

    def forward(self, x: Any) -> Any:
        return x + self.table


def dropout(layer: Any) -> nn.Module:
    """Dropout; drops whole samples if the layer's noise has one value for each sample."""
    if layer.noise_shape is None:
        return nn.Dropout(layer.rate)

    class OfSamples(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * F.dropout(x.new_ones(len(x), 1, 1, 1), layer.rate, self.training)

    return OfSamples()


def pooling(layer: Any) -> nn.Module:
    size, strides = layer.pool_size, layer.strides
    return Stateless(lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), size, strides).permute(0, 2, 3, 1))


def mean_of(layer: Any) -> nn.Module:
    dimensions, keep = tuple(range(1, len(layer.input.shape) - 1)), layer.keepdims
    return Stateless(lambda x: x.mean(dimensions, keepdim=keep))


def padding(layer: Any) -> nn.Module:
    (top, bottom), (left, right) = layer.padding
    return Stateless(lambda x: F.pad(x, (0, 0, left, right, top, bottom)))


def normalization(layer: Any) -> nn.Module:
    mean, variance = (torch.from_numpy(keras.ops.convert_to_numpy(v).copy()) for v in (layer.mean, layer.variance))
    return Stateless(lambda x: (x - mean) / variance.sqrt().clamp(min=1e-7))


def embedding(layer: Any) -> nn.Module:
    table = parameter(layer.embeddings)
    return nn.Embedding(*table.shape, _weight=table)


def reshaped(layer: Any) -> nn.Module:
    shape = layer.target_shape
    return Stateless(lambda x: x.reshape(len(x), *shape))


def permuted(layer: Any) -> nn.Module:
    order = (0, *layer.dims)
    return Stateless(lambda x: x.permute(order))


MODULES = {
    layers.Dense: Dense,
    layers.Conv2D: Convolution,
    layers.DepthwiseConv2D: Convolution,
    layers.Conv2DTranspose: Convolution,
    layers.BatchNormalization: BatchNormalization,
    layers.LayerNormalization: layer_normalization,
    layers.MultiHeadAttention: SelfAttention,
    layers.LSTM: Recurrent,
    layers.GRU: Recurrent,
    layers.Bidirectional: Recurrent,
    layers.Embedding: embedding,
    Sampled: lambda _: Sampling(),
    Positions: Offset,
    layers.Dropout: dropout,
    layers.MaxPooling2D: pooling,
    layers.GlobalAveragePooling2D: mean_of,
    layers.GlobalAveragePooling1D: mean_of,
    layers.ZeroPadding2D: padding,
    layers.Normalization: normalization,
    layers.Rescaling: lambda layer: Stateless(lambda x: x * layer.scale + layer.offset),
    layers.Activation: lambda layer: ACTIVATIONS[layer.activation.__name__],
    layers.Reshape: reshaped,
    layers.Permute: permuted,
    layers.Flatten: lambda _: nn.Flatten(),
    layers.Concatenate: lambda layer: Stateless(lambda each: torch.cat(each, layer.axis)),
    layers.Add: lambda _: Stateless(lambda each: each[0] + each[1]),
    layers.Multiply: lambda _: Stateless(lambda each: each[0] * each[1]),
    layers.Dot: lambda _: Stateless(lambda each: each[0] @ each[1].transpose(1, 2)),
    layers.Attention: lambda _: Stateless(
        lambda each: F.scaled_dot_product_attention(each[0], each[1], each[1], scale=1.0)
    ),
    keras.src.ops.numpy.GetItem: lambda _: Stateless(operator.getitem),
}
