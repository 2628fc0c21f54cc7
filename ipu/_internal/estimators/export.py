"""SavedModels of an estimator's modes, from functions that make placeholders."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.model_utils import export_output as outputs
from tensorflow.python.saved_model.model_utils import export_utils

from engine.errors import ConfigurationError
from engine.whole_files import put
from ipu._internal.estimators.keras_names import fresh_keras_names
from ipu._internal.estimators.specs import EstimatorSpec, ModeKeys

v1 = tf.compat.v1
ExportOutput = outputs.ExportOutput
ClassificationOutput, PredictOutput = outputs.ClassificationOutput, outputs.PredictOutput
RegressionOutput = outputs.RegressionOutput
Receiver = namedtuple("Receiver", "features labels receiver_tensors receiver_tensors_alternatives")


class ServingInputReceiver(Receiver):
    """The features of a served request, a tensor or a dictionary, and the tensors that are fed, by name."""

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> ServingInputReceiver:
        return super().__new__(cls, features, None, _named(receiver_tensors), receiver_tensors_alternatives)


class TensorServingInputReceiver(ServingInputReceiver):
    """A ServingInputReceiver for a model function that takes one tensor."""

    __slots__ = ()


class SupervisedInputReceiver(Receiver):
    """Features and labels of training or evaluation, and the tensors that are fed, by name."""

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> SupervisedInputReceiver:
        return super().__new__(cls, features, labels, _named(receiver_tensors), None)


def _named(tensors: Any) -> dict[str, Any]:
    return dict(tensors) if isinstance(tensors, dict) else {"input": tensors}


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes placeholders like the tensors `features`, with that batch size."""

    def receiver() -> ServingInputReceiver:
        fed = {
            name: v1.placeholder(tensor.dtype, [default_batch_size, *tensor.shape.as_list()[1:]], name)
            for name, tensor in features.items()
        }
        return ServingInputReceiver(fed, fed)

    return receiver


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that makes a placeholder for serialized tf.train.Examples, which are parsed by `feature_spec`."""

    def receiver() -> ServingInputReceiver:
        examples = v1.placeholder(tf.string, [default_batch_size], "input_example_tensor")
        return ServingInputReceiver(v1.parse_example(examples, feature_spec), {"examples": examples})

    return receiver


def export_all(
    base: str,
    receivers: Mapping[str, Callable[[], Any]],
    call: Callable[[Any, Any, str], EstimatorSpec],
    checkpoint: str,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    strip_default_attrs: bool = True,
) -> bytes:
    """The folder, below `base`, of a SavedModel with a graph for each mode in `receivers`.

    `call` of features, labels and mode builds the model in the default graph. Raises ConfigurationError for a receiver
    that is None, for a mode that does not exist, and for no mode at all.
    """
    legal = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
    if not receivers or not receivers.keys() <= set(legal):
        raise ConfigurationError(
            f"Expected the modes of an export to be of ModeKeys: {', '.join(map(repr, legal))}. Received: "
            f"{list(receivers)}."
        )
    folder = export_utils.get_timestamped_export_dir(base)
    temporary = export_utils.get_temp_export_dir(folder)
    builder = v1.saved_model.Builder(temporary)
    modes = [mode for mode in legal if mode in receivers]
    for mode in modes:
        if receivers[mode] is None:
            raise ConfigurationError(f"Expected an input_receiver_fn for mode {mode!r}. Received: None.")
        with tf.Graph().as_default(), fresh_keras_names():
            v1.train.create_global_step()
            received = receivers[mode]()
            spec = call(received.features, received.labels, mode)
            made = export_utils.export_outputs_for_mode(
                mode, spec.export_outputs, spec.predictions, spec.loss, spec.eval_metric_ops or None
            )
            signatures = export_utils.build_all_signature_defs(
                received.receiver_tensors, made, received.receiver_tensors_alternatives, mode == ModeKeys.PREDICT
            )
            scaffold = spec.scaffold or v1.train.Scaffold()
            with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
                saver = scaffold.saver or v1.train.Saver(sharded=True)
                saver.restore(session, checkpoint)
                if mode == ModeKeys.TRAIN:
                    v1.add_to_collection("train_op", spec.train_op)
                arguments = {
                    "tags": export_utils.EXPORT_TAG_MAP[mode],
                    "signature_def_map": signatures,
                    "assets_collection": v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                    "main_op": scaffold.local_init_op or v1.train.Scaffold.default_local_init_op(),
                    "strip_default_attrs": strip_default_attrs,
                    "saver": saver,
                }
                if mode == modes[0]:
                    builder.add_meta_graph_and_variables(session, **arguments)
                else:
                    builder.add_meta_graph(**arguments)
    builder.save(as_text)
    for name, source in (assets_extra or {}).items():
        target = os.path.join(os.fsdecode(temporary), "assets.extra", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    put(Path(os.fsdecode(temporary)), Path(os.fsdecode(folder)))
    return folder
