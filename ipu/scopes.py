"""Scoping contexts: the public names of `tensorflow.python.ipu.scopes` (Python API, 18.3).

A function that runs on the IPU is one program whatever its scopes are. Scopes for the placement of operations set an
attribute on them and change no result; outside_compilation_scope runs them on the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.core.framework import attr_value_pb2

from engine.errors import ConfigurationError
from engine.ir.attributes import PARTIALS_SCOPE
from ipu._internal.compiler.traced_pipelines import note_ipus
from ipu._internal.compiler.variables import in_symbolic_graph, tracing
from ipu._internal.config.system import device_named, ordinal_named
from ipu._internal.graphs.session_operations import building_graph
from ipu._internal.host_functions.outside import is_outside, outside
from ipu._internal.names.namespace import public_names

__all__ = [
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "outside_compilation_scope",
    "partials_type",
    "stochastic_rounding",
]

FRONTEND_ATTRIBUTES, SHARD, JIT_SCOPE = "_XlaFrontendAttributes", "_XlaSharding", "_XlaScope"
PARTIALS = {np.dtype(np.float16): "half", np.dtype(np.float32): "float"}
Context = contextlib.AbstractContextManager[None]


@contextlib.contextmanager
def frontend_attribute(attribute_name: str, attribute_value: str, restore_to: str | None = None) -> Iterator[None]:
    """Sets the specified scope attribute to the specified value in the graph.

    Operations traced in the scope carry it into the program, as a frontend attribute of XLA; their gradients do not.

    Args:
        attribute_name: name of the attribute.
        attribute_value: its value as a string.
        restore_to: its value after the end of the scope if it was undefined before.

    Raises:
        TypeError: name or value is no string.
    """
    for given, what in ((attribute_name, "attribute_name"), (attribute_value, "attribute_value")):
        if not isinstance(given, str):
            raise TypeError(f"Expected {what} to be a string. Received: {given!r} of type {type(given).__name__}.")
    graph = tf.compat.v1.get_default_graph()
    before = _frontend_attributes(graph)
    _set_frontend_attributes(graph, {**before, attribute_name: attribute_value})
    try:
        yield
    finally:
        after = dict(before)
        if attribute_name not in after and restore_to is not None:
            after[attribute_name] = restore_to
        _set_frontend_attributes(graph, after)


def ipu_jit_scope(ipu_scope: str) -> Context:
    """Provides a scope for compilation of operations.

    It has no effect here, neither on results nor in the cost report: a function is compiled as a whole.

    Args:
        ipu_scope: a name to differentiate between different JIT scopes.
    """
    return _attributes({JIT_SCOPE: attr_value_pb2.AttrValue(s=f"jit_scope_ipu_{ipu_scope}".encode())})


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Provides a scope for placing operations onto a particular IPU.

    IPUStrategy and ipu_compiler decide which functions run on the device, with all their operations. In a tf.Graph the
    scope names the device of the functions that are compiled in it, which may be configured later. Variables created
    in it are resource variables.

    Args:
        device: the name of the TensorFlow device, such as "/device:IPU:0".

    Raises:
        ValueError: `device` names no IPU device, or, outside of a tf.Graph, one that is not configured.
    """
    with contextlib.ExitStack() as scopes:
        if building_graph():
            ordinal_named(device)
            scopes.enter_context(tf.device(device))
            scope = tf.compat.v1.get_variable_scope()
            scopes.enter_context(tf.compat.v1.variable_scope(scope, use_resource=True, auxiliary_name_scope=False))
        else:
            device_named(device)
        scopes.enter_context(ipu_jit_scope("0"))
        yield


def ipu_shard(index: int | list[int]) -> Context:
    """Control sharding for a set of operations.

    All shards are one device here. The scope sets the shard of its operations, the first one of a list, as the
    attribute that `ipu.sharding` propagates. A replica of a function with shards 0 to n - 1 takes n of the device's
    IPUs, or the next power of two: with two shards, auto_select_ipus = 8 gives four replicas (Training a model,
    section 6.4.1).

    Args:
        index: the index of the IPU on which to place the enclosed operations, or a list of indices.

    Raises:
        ValueError: an index is no integer or negative, or the list is empty.
    """
    indices: list[Any] = index if isinstance(index, list) and index else [index]
    for each in indices:
        if isinstance(each, bool) or not isinstance(each, int) or each < 0:
            raise ConfigurationError(f"Expected index to be an integer of at least 0. Received: {each!r}. Nearest: 0.")
    if not tf.executing_eagerly():
        note_ipus((tuple(indices),))
    # XLA accepts shardings over several devices for tuples only.
    shard = sharding_of(indices[0])
    return _attributes({SHARD: lambda node: shard if takes_shard(node.op) else None})


def sharding_of(index: int) -> attr_value_pb2.AttrValue:
    """The attribute of operations on a shard."""
    sharding = xla_data_pb2.OpSharding(type=xla_data_pb2.OpSharding.MAXIMAL, tile_assignment_devices=[index])
    return attr_value_pb2.AttrValue(s=sharding.SerializeToString())


def takes_shard(operation_type: str) -> bool:
    """Whether operations of the type take the attribute.

    A captured variable becomes a parameter (a Placeholder). If it is updated, XLA accepts it only without sharding.
    """
    return operation_type != "Placeholder"


def outside_compilation_scope(name: str = "outside") -> Context:
    """Provides a scope for placing operations on the host, outside the current compilation scope.

    TensorFlow executes them on the host in the middle of a step, once in each execution, so the scope may contain
    operations that XLA cannot compile. The program can use results that are numbers or booleans of static shape, and
    differentiate them where TensorFlow can. Variables can be read. Each use costs a call of the host, some 0.4 ms.

    Args:
        name: a name for the outside compilation scope.

    Raises:
        ValueError: entered outside of a function that is traced, or inside another such scope.
        UnsupportedOperation: a variable is assigned inside the scope.
    """
    if tf.executing_eagerly():
        raise ConfigurationError(
            "Expected outside_compilation_scope inside a function that runs on the IPU. Received: a use outside of "
            "any, where everything runs on the host. Leave the scope out."
        )
    if is_outside():
        raise ConfigurationError(
            f"Expected outside_compilation_scope outside of another one. Received: the scope {name!r} inside one. "
            f"Leave it out."
        )
    if tracing() and not in_symbolic_graph():
        return outside(name)
    return tf.name_scope(name)


def partials_type(override_type: object) -> Context:
    """Override the default type used to store intermediate results by convolution and matrix multiply operations.

    It affects the cost report: the plans of these operations, but not of gradients traced outside of the scope, use it
    instead of the partialsType of IPUConfig and of PipelineStageOptions. Results do not change. Operations have it as
    the frontend attribute PARTIALS_TYPE.

    Args:
        override_type: NumPy type of the partials, float16 or float32.

    Raises:
        ValueError: `override_type` is neither.
    """
    try:
        dtype = np.dtype(override_type)  # type: ignore[call-overload]  # it is what this checks
    except TypeError:
        dtype = None
    if dtype not in PARTIALS:
        raise ConfigurationError(
            f"Expected override_type to be numpy.float16 or numpy.float32. Received: {override_type!r}. "
            f"Nearest: numpy.float32."
        )
    return frontend_attribute(PARTIALS_SCOPE, PARTIALS[dtype])


def stochastic_rounding(override: bool) -> Context:
    """Control stochastic rounding for a set of operations.

    It overrides IPUConfig.floating_point_behaviour.esr where results are rounded to 16-bit floats. It is a hint, as on
    an IPU: operations carry it as the frontend attribute STOCHASTIC_ROUNDING, and an operation that the compiler
    makes of several others may lose it.

    Args:
        override: whether stochastic rounding is to be used.
    """
    return frontend_attribute("STOCHASTIC_ROUNDING", "THREESTATE_ON" if override else "THREESTATE_OFF")


@contextlib.contextmanager
def _attributes(attributes: Mapping[str, attr_value_pb2.AttrValue | Callable[[Any], Any]]) -> Iterator[None]:
    with tf.compat.v1.get_default_graph()._attr_scope(dict(attributes)):
        yield


def _frontend_attributes(graph: tf.Graph) -> dict[str, str]:
    value = graph._attr_scope_map.get(FRONTEND_ATTRIBUTES)
    return dict(xla_data_pb2.FrontendAttributes.FromString(value.s).map) if value is not None else {}


def _set_frontend_attributes(graph: tf.Graph, attributes: dict[str, str]) -> None:
    if not attributes:
        graph._attr_scope_map.pop(FRONTEND_ATTRIBUTES, None)
        return
    proto = xla_data_pb2.FrontendAttributes(map=attributes)
    graph._attr_scope_map[FRONTEND_ATTRIBUTES] = attr_value_pb2.AttrValue(s=proto.SerializeToString())


__getattr__, __dir__ = public_names(__name__, __all__)
