"""Compilation of a traced function to HLO, by TensorFlow."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from engine.errors import UnsupportedOperation
from engine.ir import Module
from ipu._internal.compiler.costly_expansions import DynamicOperand
from ipu._internal.compiler.costly_kernels import FACTORIZATIONS
from ipu._internal.compiler.custom_calls import rewritten_for_xla
from ipu._internal.compiler.hlo import import_hlo
from ipu._internal.compiler.refusals import refusal, refused_operation
from ipu._internal.host_functions.calls import check_shapes

logger = logging.getLogger("ipu")


def module_of(
    concrete: ConcreteFunction,
    specs: Sequence[tf.TensorSpec],
    checks: bool = False,
    captured: Sequence[tf.Tensor] | None = None,
) -> Module:
    """Imports the module of a concrete function: parameters for `specs`, then for its captures.

    With `checks` it has the checks of value_checks.py. Raises as `emitted` and `import_hlo`.
    """
    captured = concrete.captured_inputs if captured is None else captured
    try:
        return import_hlo(emitted(concrete, specs, captured, checks=checks))
    except DynamicOperand:
        return import_hlo(emitted(concrete, specs, captured, costly=False, checks=checks))


def emitted(
    concrete: ConcreteFunction,
    specs: Sequence[tf.TensorSpec],
    captured: Sequence[tf.Tensor],
    costly: bool = True,
    checks: bool = False,
) -> bytes:
    """The HloModuleProto of a concrete function, with or without the custom calls of costly_kernels.py and `checks`.

    XLA takes numbers that it must know from the values of `captured` variables. Raises UnsupportedOperation for dynamic
    shapes, strings, and operations that XLA refuses.
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
    ways = itertools.product((True, False) if checks else (True,), (True, False) if costly else (False,))
    first = None
    for passing, replaced in ways:
        with rewritten_for_xla(concrete, replaced, checks, passing) as name:
            if name is not None:
                try:
                    return _serialized(name, specs, captured)
                except (tf.errors.OpError, ValueError) as error:
                    first = first or error
    with rewritten_for_xla(concrete, costly=False, checks=False) as name:
        try:
            made = _serialized(name or concrete.name, specs, captured)
        except (tf.errors.OpError, ValueError) as error:
            logger.debug("XLA refuses a step", exc_info=error)
            # This error names operations of the function as it was traced, also those of which XLA needs a custom call.
            raise refusal(first if first and refused_operation(error) in FACTORIZATIONS else error) from None
    with rewritten_for_xla(concrete, False, checks) as name:
        if checks and name is not None:
            logger.warning("Values of %r are not checked: XLA has no program with the checks.", concrete.name)
    return made


def _serialized(name: str, specs: Sequence[tf.TensorSpec], captured: Sequence[tf.Tensor]) -> bytes:
    """The HLO of the function of this name with these captures."""
    # As compiler_ir.from_concrete_function, which takes no specs, but derives them itself.
    return context.context().get_compiler_ir(
        # TensorFlow's own finds the device by drawing a random number, which later ones would miss.
        device_name=tf.zeros([]).device,
        platform_name=None,
        function_name=name,
        flat_args=list(specs),
        captured_inputs=captured,
        stage="hlo_serialized",
    )
