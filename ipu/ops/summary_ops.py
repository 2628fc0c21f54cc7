"""Summary operations: the public names of `tensorflow.python.ipu.summary_ops` (Python API, 18.14.18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import SummaryMetadata

from ipu._internal.names.namespace import public_names
from ipu._internal.profiling.event_trace import ipu_event_trace
from ipu._internal.types import TensorLike

__all__ = ["ipu_compile_summary", "tensor_summary"]
__getattr__, __dir__ = public_names(__name__, __all__)


def ipu_compile_summary(name: str, op_list: Any, collections: Sequence[str] | None = None) -> tf.Tensor:
    """Create an IPU compiler summary operation for a tf.Graph.

    Args:
        name: a name for the summary.
        op_list: an operation or list of operations to make this summary dependent upon.
        collections: optional collections to add the summary into.

    Returns:
        A serialized Summary, a scalar string. Its tensor holds the events since the previous summary, which the
        functions `ipu.utils.extract_...` read.
    """
    depends = op_list if isinstance(op_list, list | tuple) else [op_list]
    with tf.control_dependencies(tf.nest.flatten(depends)):
        events = ipu_event_trace()
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="ipu"))
    return tensor_summary(name, events, collections=collections, summary_metadata=metadata, display_name=name)


def tensor_summary(
    name: str,
    tensor: TensorLike,
    summary_description: str | None = None,
    collections: Sequence[str] | None = None,
    summary_metadata: SummaryMetadata | None = None,
    family: str | None = None,
    display_name: str | None = None,
) -> tf.Tensor:
    """Outputs a Summary protocol buffer with a serialized tensor: tf.compat.v1.summary.tensor_summary on the host.

    Args:
        name: a name for the operation, also the tag of the summary.
        tensor: the tensor to serialize, of any dtype and shape.
        summary_description: a description, for the summary's metadata.
        collections: names of graph collections to add the result to; tf.compat.v1.GraphKeys.SUMMARIES if None.
        summary_metadata: a SummaryMetadata, which is changed in place; a new one if None.
        family: a prefix of the tag, before a slash.
        display_name: a name to show, for the summary's metadata.

    Returns:
        A scalar string tensor: the serialized Summary.
    """
    options = (summary_description, collections, summary_metadata, family, display_name)
    with tf.device("/device:CPU:0"):
        return tf.compat.v1.summary.tensor_summary(name, tensor, *options)
