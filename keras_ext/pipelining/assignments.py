"""The objects in which a program reads and sets the stage of each call of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras_ext.types import KerasLayer, KerasModel, KerasNode


class StageAssignment:
    """Base of the assignments of all kinds of models."""

    is_nested_model = False
    """Whether the assignment is one of a nested model, with assignments of its layers."""

    def __init__(self, layer: KerasLayer, pipeline_stage: int | None = None) -> None:
        self._layer = layer
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The Keras layer of this assignment; in Keras 3 also an operation of `keras.ops`."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage the layer's call is assigned to; None if to none. Checked when the assignment is set."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, stage: int | None) -> None:
        self._pipeline_stage = stage


class SequentialLayerPipelineStageAssignment(StageAssignment):
    """The stage in which a layer of a `Sequential` model runs.

    Args:
        layer: the layer.
        pipeline_stage: the number of the stage, from 0; None for no stage.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layer={self.layer.name!r}, pipeline_stage={self.pipeline_stage})"


class _InvocationAssignment(StageAssignment):
    """An assignment of one of the calls of a layer."""

    def __init__(self, layer: KerasLayer, node_index: int, pipeline_stage: int | None = None) -> None:
        super().__init__(layer, pipeline_stage)
        self._node_index = node_index
        self._inbound: list[Any] | None = None

    @property
    def node_index(self) -> int:
        """The index of the call among the layer's calls in this model, from 0."""
        return self._node_index

    @property
    def inbound_layers(self) -> Any:
        """The layers whose outputs the call takes, in a list; the layer itself if there is only one."""
        inbound = self._inbound
        if inbound is None:
            inbound = inbound_layers(self._layer._inbound_nodes[self._node_index])
        return inbound[0] if len(inbound) == 1 else list(inbound)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(layer={self.layer.name!r}, node_index={self.node_index}, "
            f"pipeline_stage={self.pipeline_stage})"
        )


class FunctionalLayerPipelineStageAssignment(_InvocationAssignment):
    """The stage in which one of the calls of a layer of a functional model runs.

    Args:
        layer: the layer.
        node_index: the index of the call among its calls in the model, from 0.
        pipeline_stage: the number of the stage, from 0; None for no stage.
    """


class ModelLayerPipelineStageAssignment(_InvocationAssignment):
    """The stage in which one of the calls of a layer of a subclass of `Model` runs.

    Args:
        layer: the layer.
        node_index: the index of the call among its calls in the model, from 0.
        pipeline_stage: the number of the stage, from 0; None for no stage.
    """


class NestedModelPipelineStageAssignment(StageAssignment):
    """Base of the assignments of nested models: `pipeline_stage_assignments`, one for each of the model's layers.

    `pipeline_stage` is the stage of all layers, None if their stages differ.

    Args:
        nested_model: the model.
        pipeline_stage_assignments: an assignment for each of its layers, or of their calls, in order.
    """

    is_nested_model = True

    def __init__(self, nested_model: KerasModel, pipeline_stage_assignments: Sequence[Any]) -> None:
        self._layer = nested_model
        self.pipeline_stage_assignments = list(pipeline_stage_assignments)

    @property
    def nested_model(self) -> Any:
        """The nested model, which is also `layer`."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage of all layers of the nested model; None if they are in several, or in none. Setting it sets all."""
        stages = {assignment.pipeline_stage for assignment in self.pipeline_stage_assignments}
        return stages.pop() if len(stages) == 1 else None

    @pipeline_stage.setter
    def pipeline_stage(self, stage: int | None) -> None:
        for assignment in self.pipeline_stage_assignments:
            assignment.pipeline_stage = stage

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nested_model.name!r}, {self.pipeline_stage_assignments})"


class SequentialNestedModelPipelineStageAssignment(
    NestedModelPipelineStageAssignment, SequentialLayerPipelineStageAssignment
):
    """The stages in which the layers of a model run that is a layer of a `Sequential` model.

    Args:
        nested_model: the model.
        pipeline_stage_assignments: an assignment for each of its layers, or of their calls, in order.
    """


class _NestedInvocationAssignment(NestedModelPipelineStageAssignment, _InvocationAssignment):
    """An assignment of a call of a nested model in a model that is not sequential."""

    def __init__(self, nested_model: KerasModel, node_index: int, pipeline_stage_assignments: Sequence[Any]) -> None:
        super().__init__(nested_model, pipeline_stage_assignments)
        self._node_index, self._inbound = node_index, None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.nested_model.name!r}, node_index={self.node_index}, "
            f"{self.pipeline_stage_assignments})"
        )


class FunctionalNestedModelPipelineStageAssignment(_NestedInvocationAssignment, FunctionalLayerPipelineStageAssignment):
    """The stages in which the layers of a nested model run in one of its calls by a functional model.

    Args:
        nested_model: the model.
        node_index: the index of the call among its calls in the outer model, from 0.
        pipeline_stage_assignments: an assignment for each of its layers, or of their calls, in order.
    """


class ModelNestedModelPipelineStageAssignment(_NestedInvocationAssignment, ModelLayerPipelineStageAssignment):
    """The stages in which the layers of a nested model run in one of its calls by a subclass of `Model`.

    Args:
        nested_model: the model.
        node_index: the index of the call among its calls in the outer model, from 0.
        pipeline_stage_assignments: an assignment for each of its layers, or of their calls, in order.
    """


def inbound_layers(node: KerasNode) -> list[Any]:
    """The layers whose outputs a Keras node takes, one for each tensor it takes."""
    return [tensor._keras_history[0] for tensor in input_tensors(node)]


def input_tensors(node: KerasNode) -> list[Any]:
    """The symbolic tensors that a Keras node takes."""
    return list(node.input_tensors if hasattr(node, "operation") else node.keras_inputs)


def flat_arguments(node: KerasNode) -> list[Any]:
    """All arguments of a Keras node's call of its layer."""
    return list(node.arguments._flat_arguments if hasattr(node, "operation") else node._flat_arguments)
