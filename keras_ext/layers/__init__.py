"""Definitions of the documented layers, one for both Keras; `keras_ext/names` has their classes."""

from __future__ import annotations

from keras_ext.layers.ctc import CTCInferenceLayer, CTCPredictionsLayer
from keras_ext.layers.definition import Definition
from keras_ext.layers.dropout import Dropout
from keras_ext.layers.gradient_capture import CaptureActivationGradients, CaptureUpstreamGradients
from keras_ext.layers.normalization import GroupNormalization, InstanceNormalization, LayerNormalization
from keras_ext.layers.recomputation import RecomputationCheckpoint
from keras_ext.layers.recurrent import PopnnGRU, PopnnLSTM
from keras_ext.layers.replicas import AssumeEqualAcrossReplicas
from keras_ext.layers.serialization import Embedding, SerialDense

DEFINITIONS: dict[str, type[Definition]] = {
    "AssumeEqualAcrossReplicas": AssumeEqualAcrossReplicas,
    "CTCInferenceLayer": CTCInferenceLayer,
    "CTCPredictionsLayer": CTCPredictionsLayer,
    "CaptureActivationGradients": CaptureActivationGradients,
    "CaptureUpstreamGradients": CaptureUpstreamGradients,
    "Dropout": Dropout,
    "Embedding": Embedding,
    "GRU": PopnnGRU,
    "GroupNormalization": GroupNormalization,
    "InstanceNormalization": InstanceNormalization,
    "LSTM": PopnnLSTM,
    "LayerNormalization": LayerNormalization,
    "PopnnGRU": PopnnGRU,
    "PopnnLSTM": PopnnLSTM,
    "RecomputationCheckpoint": RecomputationCheckpoint,
    "SerialDense": SerialDense,
}
"""Definitions by documented name; an alias is a second name of the same definition."""
OLD_NAMES = {f"{kind}Norm": f"{kind}Normalization" for kind in ("Group", "Instance", "Layer")}
"""Names of the SDKs up to 2.2, which are not listed, and the documented ones."""
