"""Turns XLA's refusal to compile a step into an error that names the operation, its layer and a remedy."""

from __future__ import annotations

import re

from engine.errors import UnsupportedOperation

_OPERATION = re.compile(r"XLA_[A-Z]+_JIT\w*: (\w+) \(")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_NODE_WITH_OPERATION = re.compile(r"node `[^`]*` with op (\w+)")
_WRONG_DTYPE = re.compile(r"variable with wrong dtype\. Expected (\w+) got (\w+)")
_WITH_TEXT = re.compile(r"Requested Attributes: .*DT_STRING")
_PLACES = {"_Retval": "a result", "_Arg": "a captured tensor", "XlaCustomCallV2": "an operand of a device operation"}
_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
"""XLA's names of types, and TensorFlow's where those are others."""
_PREFIX = "Failed getting HLO text: '"
_SEGMENTS = re.compile(r"(Sparse)?Segment(Max|Mean|Min|Prod|SqrtN|Sum)")
_INSTEAD = {
    "CTCBeamSearchDecoder": "Use ipu.nn_ops.ctc_beam_search_decoder, whose labels are dense and have lengths.",
    "CTCGreedyDecoder": "Return tf.argmax of the logits, and merge equal neighbours on the host; or use "
    "ipu.nn_ops.ctc_beam_search_decoder.",
    "CTCLoss": "Use ipu.nn_ops.ctc_loss_v2 or tf.compat.v1.nn.ctc_loss_v2, with dense labels and their lengths.",
    "Placeholder": "Create it outside of the computation, and give it as one of ipu_compiler.compile's inputs.",
    "RaggedTensorToTensor": "Give to_tensor the shape of its result, with a number for each dimension.",
    "ResourceStridedSliceAssign": "For rows of a computed number use tf.compat.v1.scatter_update or scatter_nd_update.",
    "SparseCross": "Cross the features in the input pipeline, for example with tf.data's map.",
}
"""Advice for operations that the API has in another form."""
_GENERATED_SCOPES = frozenset({"gradient_tape", "PartitionedCall", "StatefulPartitionedCall"})


class ShapeFromValues(UnsupportedOperation):
    """Shapes depend on the values of arguments or variables."""


def refusal(error: Exception) -> UnsupportedOperation:
    """The error to raise in place of XLA's; it quotes XLA where XLA says more than the operation's name."""
    message = str(error).removeprefix(_PREFIX)
    first_line = message.strip().splitlines()[0] if message.strip() else type(error).__name__
    node, operation = _last_node(message), refused_operation(error)
    where = f" at {node!r}{_layer(node)}" if node else ""
    if wrong := _WRONG_DTYPE.search(message):
        given, held = (_DTYPES.get(name, name) for name in wrong.groups())
        return UnsupportedOperation(
            f"Expected a value of its variable's dtype, {held}. Received: {given} in {operation}{where}. "
            f"Cast it first, a gradient with tf.cast(gradient, variable.dtype). XLA says: {first_line}"
        )
    if _WITH_TEXT.search(message):
        place = f"in {_PLACES.get(operation, operation)}"
        return UnsupportedOperation(
            f"Expected numbers or booleans. Received: text, of dtype string, {place}{where}. Encode it on the host, in "
            f"the input pipeline, or use it in ipu.scopes.outside_compilation_scope alone."
        )
    more = "" if _OPERATION.search(message) else f" XLA says: {_NODE.sub('', first_line).strip()}"
    kind = ShapeFromValues if _is_about_constants(message) else UnsupportedOperation
    return kind(
        f"Expected operations that XLA can compile with static shapes. Received: {operation}{where}. "
        f"{_advice(message, operation)}{more}"
    )


def _last_node(message: str) -> str:
    return (_NODE.findall(message) or [""])[-1]


def refused_operation(error: Exception) -> str:
    """The type of the operation that XLA refuses."""
    message = str(error).removeprefix(_PREFIX)
    if found := _OPERATION.search(message) or _NODE_WITH_OPERATION.search(message):
        return found.group(1)
    return re.sub(r"_\d+$", "", _last_node(message).rsplit("/", 1)[-1]) or "an operation it refuses"


def _layer(node: str) -> str:
    scopes = [scope for scope in node.split("/")[:-1] if scope not in _GENERATED_SCOPES]
    return f" in layer {scopes[-1]!r}" if scopes else ""


def _is_about_constants(message: str) -> bool:
    return "compile-time constant" in message or "must be a constant" in message


def _advice(message: str, operation: str) -> str:
    if segments := _SEGMENTS.fullmatch(operation):
        use = "give the function num_segments" if segments[1] else "use tf.math.unsorted_segment_* with num_segments"
        return f"The last of its segment_ids is the number of segments: give constants as segment_ids, or {use}."
    if operation in _INSTEAD:
        return _INSTEAD[operation]
    if _is_about_constants(message):
        return "Its shape depends on values known only at run time: compute it from static shapes or constants."
    if "fixed tensor list size" in message:
        return (
            "Give tf.while_loop maximum_iterations: gradients of a loop keep a value for each iteration. In place of "
            "tf.nn.raw_rnn use tf.nn.dynamic_rnn, with lengths as sequence_length."
        )
    return (
        "Run it on the host, in the input pipeline (for example with tf.data's map) or, at the cost of a call in each "
        "step, in ipu.scopes.outside_compilation_scope; or replace the layer."
    )
