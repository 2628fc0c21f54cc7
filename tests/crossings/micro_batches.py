"""The settings of the IPU's API that a program has, and steps of plain Keras with the same meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf


def part(structure: Any, begin: int, end: int) -> Any:
    """Rows `begin` to `end` of each array of a structure."""
    return tf.nest.map_structure(lambda array: array if array is None else array[begin:end], structure)


def variable(weight: Any) -> Any:
    """TensorFlow's variable of a weight."""
    return weight if isinstance(weight, tf.Variable) else weight.value


@dataclass
class Device:
    """The settings of the IPU's API that a program has: `rows` samples are a micro-batch of one replica."""

    rows: int
    accumulate: int = 1
    reduction: str = "sum"
    replicas: int = 1
    stages: int = 1
    schedule: str = "Grouped"
    processes: int = 1
    recompute: bool = False
    offload: bool = False
    stochastic: bool = False
    asynchronous: bool = False
    prefetch: bool = False
    accumulate_outfeed: bool = False
    strategy: Any = None
    index: int = 0

    def __post_init__(self) -> None:
        if self.stages > 1:
            self.accumulate *= self.stages * {"Grouped": 2, "Interleaved": 1, "Sequential": 1}[self.schedule]

    @property
    def update(self) -> int:
        """The samples of an update of all processes."""
        return self.own_update * self.processes

    @property
    def own_update(self) -> int:
        """The samples of an update in one process."""
        return self.rows * self.accumulate * self.replicas

    def mine(self, array: Any) -> Any:
        """The rows of this process: in each step those of its replicas."""
        steps = np.reshape(array, (-1, self.processes, self.replicas * self.rows, *np.shape(array)[1:]))
        return steps[:, self.index].reshape(-1, *np.shape(array)[1:])

    def configure(self) -> None:
        """Configures the device."""
        from tensorflow.python import ipu

        config = ipu.config.IPUConfig()
        per_replica = 1 << (self.stages - 1).bit_length()
        if self.processes > 1:
            import popdist.tensorflow

            from ipu.distributed.popdist_strategy import PopDistStrategy

            popdist.init()
            self.strategy, self.index = PopDistStrategy(), popdist.getInstanceIndex()
            popdist.tensorflow.set_ipu_config(config, ipus_per_replica=per_replica)
        else:
            config.auto_select_ipus = self.replicas * per_replica
        config.allow_recompute = self.recompute
        if self.stochastic:
            config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.ON
        config.configure_ipu_system()

    def set_options(self, model: Any) -> None:
        """Calls the methods that a model in the strategy's scope has."""
        steps, method = self.accumulate, self.reduction
        named: dict[str, Any] = {"offload_weight_update_variables": True} if self.offload else {}
        named |= {"gradient_accumulation_reduction_method": method, "gradient_accumulation_steps_per_replica": steps}
        if self.stages > 1:
            from tensorflow.python.ipu.pipelining_ops import PipelineSchedule

            assignment = model.get_pipeline_stage_assignment()
            for number, layer in enumerate(assignment):
                layer.pipeline_stage = number * self.stages // len(assignment)
            model.set_pipeline_stage_assignment(assignment)
            schedule = getattr(PipelineSchedule, self.schedule)
            model.set_pipelining_options(
                pipeline_schedule=schedule, accumulate_outfeed=self.accumulate_outfeed, **named
            )
        elif self.accumulate > 1:
            model.set_gradient_accumulation_options(**named)
        if self.asynchronous:
            model.set_asynchronous_callbacks(True)
        if self.prefetch:
            model.set_infeed_queue_options(prefetch_depth=5)


class MicroBatches:
    """The steps of a model of plain Keras that take the rows of an update as micro-batches of replicas.

    Each replica has its own untrained weights, such as moving statistics; the gradients are applied once.
    """

    def __init__(self, model: Any, device: Device) -> None:
        self._model, self._device = model, device
        self._own: list[Any] = []
        self._states: list[list[np.ndarray]] = []
        self._replicas = device.replicas * device.processes
        for name in ("train_step", "test_step", "predict_step"):
            vars(model).pop(name, None)
            setattr(self, f"_{name}", getattr(model, name))
            object.__setattr__(model, name, getattr(self, name))
        # Functions are traced once, as Keras does, and so see no attributes that change later.
        self._gradients, self._apply, self._test, self._predict = (
            tf.function(each, autograph=False)
            for each in (self._gradients_of, self._update, self._test_step, self._predict_step)
        )
        model.run_eagerly = True

    def train_step(self, data: Any) -> Any:
        """Trains on the rows of an update."""
        gradients, replicas = [], self._replicas
        optimizer = self._model.optimizer
        # Without its variables an optimizer scales losses by a constant.
        if not getattr(optimizer, "built", not hasattr(optimizer, "build")):
            optimizer.build(self._model.trainable_variables)
        self._own = self._own or [variable(weight) for weight in self._model.non_trainable_weights]
        if not (self._states and all(np.array_equal(a, b) for a, b in zip(self._own, self._states[0], strict=True))):
            self._states = [[each.numpy() for each in self._own] for _ in range(replicas)]  # written from outside
        for number, rows in enumerate(self._parts(data)):
            self._put(self._states[number % replicas])
            found, logs = self._gradients(rows)
            gradients.append(found)
            self._states[number % replicas] = [each.numpy() for each in self._own]
        self._put(self._states[0])
        self._apply([self._reduced(each) for each in zip(*gradients, strict=True)])
        return logs

    def _gradients_of(self, rows: Any) -> tuple[Any, Any]:
        """The gradients with which the model's step would update, and its logs."""
        optimizer, pairs = self._model.optimizer, []
        vars(optimizer)["apply_gradients"] = lambda given, *_, **__: pairs.extend(given)
        try:
            logs = self._train_step(rows)
        finally:
            del vars(optimizer)["apply_gradients"]
        self._variables = [each for _, each in pairs]
        return [gradient for gradient, _ in pairs], logs

    def _update(self, gradients: list[Any]) -> None:
        self._model.optimizer.apply_gradients(list(zip(gradients, self._variables, strict=True)))

    def _reduced(self, gradients: tuple[Any, ...]) -> Any:
        """The gradient of all micro-batches."""
        if len(gradients) == 1 or any(each is None for each in gradients):
            return gradients[0]
        steps = 1 if self._device.reduction == "sum" else self._device.accumulate
        # With several processes, Keras divides losses by the strategy's replicas.
        count = steps * (self._replicas if self._device.processes > 1 else 1)
        return tf.add_n([tf.convert_to_tensor(each) for each in gradients]) / count

    def test_step(self, data: Any) -> Any:
        """Evaluates rows."""
        return [self._test(rows) for rows in self._parts(data)][-1]

    def predict_step(self, data: Any) -> Any:
        """Predicts rows."""
        return tf.nest.map_structure(lambda *a: tf.concat(a, 0), *map(self._predict, self._parts(data)))

    def _parts(self, data: Any) -> list[Any]:
        count = len(tf.nest.flatten(data)[0])
        return [part(data, at, at + self._device.rows) for at in range(0, count, self._device.rows)]

    def _put(self, values: list[np.ndarray]) -> None:
        for each, value in zip(self._own, values, strict=True):
            each.assign(value)
