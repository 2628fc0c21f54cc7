"""PyTorch, eager or compiled: the model as plain modules, its own losses and optimizers, settings that suit a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from benchmarks import models
from benchmarks.rivals.keras_fit import rows_of
from benchmarks.rivals.torch_model import torch_model
from benchmarks.workloads import Workload
from engine.runtime.threads import usable_cores


class RMSprop:
    """Keras' RMSprop, with its epsilon below the root, in the manner of PyTorch's `foreach=True`."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self.parameters = [each for each in parameters if each.requires_grad]
        self.squares = [torch.zeros_like(each) for each in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        gradients = [each.grad for each in self.parameters]
        torch._foreach_mul_(self.squares, 0.9)
        torch._foreach_addcmul_(self.squares, gradients, gradients, 0.1)
        roots = torch._foreach_sqrt(torch._foreach_add(self.squares, 1e-7))
        torch._foreach_addcdiv_(self.parameters, gradients, roots, -1e-3)

    def zero_grad(self) -> None:
        for each in self.parameters:
            each.grad = None


class Adam(torch.optim.Adam):
    """PyTorch's own fused Adam with Keras' epsilon. Keras adds it before the correction for bias, PyTorch after."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        super().__init__(parameters, 1e-3, eps=1e-7, fused=True)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        for group in self.param_groups:
            group["eps"] = 1e-7 * (1 - group["betas"][1] ** self.steps) ** -0.5
        super().step()


def compiled_adam(parameters: Iterable[Any]) -> torch.optim.Adam:
    """PyTorch's own Adam with a constant epsilon: `torch.compile` would compile a step again for each value."""
    return torch.optim.Adam(parameters, 1e-3, eps=1e-7, fused=True)


OPTIMIZERS = {"rmsprop": RMSprop, "adam": Adam}
COMPILED_OPTIMIZERS = {"rmsprop": RMSprop, "adam": compiled_adam}


def prepare(workload: Workload, rival: str, options: list[str], inputs: Any, labels: np.ndarray) -> Callable[[], float]:
    """Builds the model and runs its first step; a round runs the workload's steps and returns seconds per step.

    The option "compile" compiles the model with its loss, and the optimizer, by `torch.compile`.
    """
    torch.set_num_threads(usable_cores())
    torch.set_num_interop_threads(1)
    torch.set_flush_denormal(True)  # as the software IPU and XLA do
    model = getattr(models, workload.model)(*workload.arguments)
    if workload.kind != "fit":
        return _predicting(workload, torch_model(model).eval(), "compile" in options, inputs)
    step = stepping(workload, model, "compile" in options)
    batch = workload.batch
    step(rows_of(inputs, 0, batch), labels[:batch])

    def round_of() -> float:
        order = np.random.permutation(workload.samples)
        start = time.perf_counter()
        for number in range(workload.steps):
            rows = order[number * batch : (number + 1) * batch]
            x = [each[rows] for each in inputs] if isinstance(inputs, list) else inputs[rows]
            step(x, labels[rows])
        return (time.perf_counter() - start) / workload.steps

    return round_of


def stepping(workload: Workload, model: Any, compiled: bool) -> Callable[[Any, np.ndarray], Any]:
    """A training step of a Keras model as PyTorch: a batch of inputs and labels to its loss."""
    module = torch_model(model)
    optimizer = (COMPILED_OPTIMIZERS if compiled else OPTIMIZERS)[workload.optimizer](module.parameters())
    by_class = workload.loss == "categories"
    compared = torch.nn.functional.cross_entropy if by_class else torch.nn.functional.binary_cross_entropy_with_logits

    def loss_of(x: list[Any], y: Any) -> Any:
        predicted, added = module(*x)
        return (compared(predicted.flatten(0, -2), y.flatten()) if by_class else compared(predicted, y)) + added

    update = optimizer.step
    if compiled:
        loss_of, update = torch.compile(loss_of), torch.compile(optimizer.step)

    def step(x: Any, y: np.ndarray) -> Any:
        optimizer.zero_grad()
        loss = loss_of(tensors(x), torch.from_numpy(y))
        loss.backward()
        update()
        return loss

    return step


def tensors(x: Any) -> list[Any]:
    """Tensors on the arrays of one or several inputs."""
    return [torch.from_numpy(each) for each in (x if isinstance(x, list) else [x])]


def _predicting(workload: Workload, module: Any, compiled: bool, inputs: Any) -> Callable[[], float]:
    called = torch.compile(module) if compiled else module

    def round_of() -> float:
        start = time.perf_counter()
        with torch.inference_mode():
            for number in range(workload.steps):
                rows = rows_of(inputs, number * workload.batch, (number + 1) * workload.batch)
                called(*tensors(rows))[0].numpy()
        return (time.perf_counter() - start) / workload.steps

    return round_of
