"""Has TensorFlow compile a traced function to HLO."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import compiler_ir
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from engine.errors import UnsupportedOperation
from ipu._internal.compiler.refusals import refusal
from ipu._internal.host_functions.calls import check_shapes


def emitted(concrete: ConcreteFunction, specs: list[tf.TensorSpec]) -> bytes:
    """The HloModuleProto of a concrete function: parameters for `specs`, then for what it captures.

    Raises UnsupportedOperation for dynamic shapes, strings, and operations that XLA refuses.
    """
    if not all(spec.shape.is_fully_defined() for spec in specs):
        raise UnsupportedOperation(
            f"Expected inputs of static shape. Received: {[str(spec.shape) for spec in specs]}. "
            f"Batch with drop_remainder=True and pad to one length."
        )
    if any(spec.dtype == tf.string for spec in specs):
        raise UnsupportedOperation(
            "Expected inputs of numbers or booleans. Received: a tensor of dtype string. "
            "Encode text on the host, in the input pipeline."
        )
    check_shapes(concrete.graph)
    try:
        # As compiler_ir.from_concrete_function, which takes no specs, but derives them itself.
        return context.context().get_compiler_ir(
            device_name=compiler_ir.maybe_get_device_name(None),
            platform_name=None,
            function_name=concrete.name,
            flat_args=specs,
            captured_inputs=concrete.captured_inputs,
            stage="hlo_serialized",
        )
    except (tf.errors.OpError, ValueError) as error:
        raise refusal(error) from error
