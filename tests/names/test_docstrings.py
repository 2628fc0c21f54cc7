"""Docstrings of public names describe parameters and results: of the most used ones all, of others ever more."""

from __future__ import annotations

import dis
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "site" / "reference.py"
MOST_USED = {
    "ipu": "accelerate allow_out_of_memory profile",
    "ipu.config": "configure_ipu_system IPUConfig.from_dict IPUConfig.from_json IPUConfig.get_attribute_metadata",
    "ipu.cross_replica_ops": "cross_replica_mean cross_replica_sum",
    "ipu.custom_ops": "Vertex.gradient vertex codelet_expression_op cpu_user_operation",
    "ipu.ipu_compiler": "compile",
    "ipu.ipu_infeed_queue": "IPUInfeedQueue",
    "ipu.ipu_outfeed_queue": "IPUOutfeedQueue IPUOutfeedQueue.dequeue IPUOutfeedQueue.enqueue",
    "ipu.ipu_strategy": "IPUStrategy IPUStrategy.reduce IPUStrategy.run",
    "ipu.loops": "repeat while_loop",
    "ipu.nn_ops": "gelu hard_sigmoid softmax swish",
    "ipu.normalization_ops": "group_norm instance_norm layer_norm",
    "ipu.optimizers": "CrossReplicaOptimizer.apply_gradients IpuOptimizer.apply_gradients "
    "IpuOptimizer.compute_gradients ShardedOptimizer.compute_gradients GradientAccumulationOptimizerV2.apply_gradients",
    "ipu.pipelining_ops": "pipeline",
    "ipu.serving": "export_keras export_pipeline export_single_step",
    "keras.ipu.extensions": "ModelExtension.export_for_ipu_serving ModelExtension.get_pipeline_schedule "
    "ModelExtension.plan_pipeline ModelExtension.plot_pipeline ModelExtension.print_pipeline_stage_assignment_summary "
    "ModelExtension.set_asynchronous_callbacks ModelExtension.set_gradient_accumulation_options "
    "ModelExtension.set_pipeline_stage_assignment ModelExtension.set_pipelining_options",
}
OTHERS = 0
"""So many functions and methods are not described yet: whoever describes one lowers this."""


def lacking(function: Callable[..., Any]) -> list[str]:
    """The sections that a docstring lacks: that of parameters if there are any, also of results, and of errors."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    named = [
        name
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls") and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    doc, result = inspect.getdoc(function) or "", str(signature.return_annotation)
    returns = not isinstance(function, type) and signature.return_annotation not in (None, inspect.Signature.empty)
    wanted = [(["Args:"], bool(named))]
    wanted += [
        (["Returns:", "Yields:"], bool(named) and returns and result not in ("None", "Iterator[None]", "Context"))
    ]
    wanted += [(["Raises:"], raises(function))]
    return [titles[0] for titles, needed in wanted if needed and not any(f"\n{title}\n" in doc for title in titles)]


def raises(function: Callable[..., Any]) -> bool:
    """Whether a function, or a class when it is called, raises errors of its own."""
    code = getattr(inspect.unwrap(function.__init__ if isinstance(function, type) else function), "__code__", None)
    opcodes = [] if code is None else [each.opname for each in dis.get_instructions(code)]
    return opcodes.count("RAISE_VARARGS") > opcodes.count("LOAD_ASSERTION_ERROR")


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions and methods, and classes but for enumerations, by the names of the reference."""
    specification = importlib.util.spec_from_file_location("reference", REFERENCE)
    assert keras and specification is not None and specification.loader is not None
    reference = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(reference)
    for module_name, module in reference.modules().items():
        for name, value in reference.names(module).items():
            if callable(value) and not hasattr(value, "__members__"):
                yield f"{module_name}.{name}", value
            for method, function in reference._methods(value).items():
                if callable(function):
                    yield f"{module_name}.{name}.{method}", function


def test_docstrings_have_parameters_and_results() -> None:
    found = dict(functions())
    most_used = [f"{module}.{name}" for module, names in MOST_USED.items() for name in names.split()]
    assert {name: lacking(found[name]) for name in most_used if lacking(found[name])} == {}
    others = {id(function): name for name, function in found.items() if lacking(function)}
    assert len(others) <= OTHERS, sorted(others.values())
