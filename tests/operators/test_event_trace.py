"""Event traces of older programs, in graphs and eagerly, in the containers that they read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.plugin.poplar.driver.trace_pb2 import IpuTraceEvent
from tensorflow.compiler.plugin.poplar.ops import gen_ipu_ops
from tensorflow.python import ipu

v1 = tf.compat.v1
KINDS = ["COMPILE_BEGIN", "COMPILE_END", "LOAD_ENGINE", "EXECUTE"]


def configure(profiling: bool = False, **options: Any) -> None:
    config = ipu.utils.create_ipu_config(profiling=profiling)
    for name, value in options.items():
        setattr(config.profiling, name, value)
    ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(config, 1))
    gen_ipu_ops.ipu_event_trace()  # takes the events of earlier tests


def kinds(events: Any) -> list[str]:
    return [IpuTraceEvent.Type.Name(kind) for kind in ipu.utils.extract_all_types_from_event_trace(events)]


def traced_in_session() -> tuple[Any, bytes]:
    """The events of a program of TensorFlow 1 that runs twice, and a summary of a third run."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [3])
        (result,) = ipu.ipu_compiler.compile(lambda y: y * 2.0, [x])
        trace = gen_ipu_ops.ipu_event_trace()
        summary = ipu.summary_ops.ipu_compile_summary("report", [result], collections=["reports"])
        assert v1.get_collection("reports") == [summary]
        with v1.Session() as session:
            for _ in range(2):
                session.run(result, {x: np.ones(3)})
            events = session.run(trace)
            assert not session.run(trace).size
            return events, session.run(summary, {x: np.ones(3)})


def test_reports_in_traces() -> None:
    profile = ipu.utils.ExecutionProfileType.IPU_PROFILE
    configure(
        enable_ipu_trace_events=True,
        enable_compilation_trace=True,
        execution_trace_type=profile,
        enable_poplar_graph=True,
    )
    events, summary = traced_in_session()
    assert kinds(events) == [*KINDS, "EXECUTE"]
    found = ipu.utils.extract_all_events(events)
    assert sorted(event.timestamp for event in found) == [event.timestamp for event in found]
    assert found[1].compile_end.duration > 0 and found[0].compile_begin.xla_graph.startswith(b"HloModule")
    ((module, report),) = ipu.utils.extract_compile_reports(events)
    assert module.encode() == found[0].compile_begin.module_name
    assert json.loads(report)["cycles"]["total"] > 0
    ((_, execution),) = ipu.utils.extract_execute_reports(events)  # by default of the first alone
    measured = json.loads(execution)
    assert measured["steps"] == 1 and measured["measured_seconds"] > 0
    assert measured["estimated_cycles"] == json.loads(report)["cycles"]["total"]
    ((_, graph),) = ipu.utils.extract_poplar_serialized_graphs(events)
    text = ipu.utils.extract_all_strings_from_event_trace(events)
    assert graph in text and report in text and text.count("Execute: ") == 2
    (value,) = v1.Summary.FromString(summary).value
    assert value.metadata.plugin_data.plugin_name == "ipu"
    assert kinds(tf.make_ndarray(value.tensor)) == ["EXECUTE"]


def test_arguments_of_a_tensor_summary() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        named = {"family": "f", "display_name": "shown", "summary_description": "said", "collections": ["mine"]}
        made = ipu.summary_ops.tensor_summary("n", tf.ones(2), **named)
        theirs = v1.summary.tensor_summary("n", tf.ones(2), **named)
        assert v1.get_collection("mine") == [made, theirs] and not v1.get_collection(v1.GraphKeys.SUMMARIES)
        (ours, plain) = (v1.Summary.FromString(each).value[0] for each in session.run([made, theirs]))
    assert ours.metadata == plain.metadata and ours.metadata.summary_description == "said"
    assert ours.tag.startswith("f/") and tf.make_ndarray(ours.tensor).tolist() == [1, 1]


def test_events_without_reports() -> None:
    configure(enable_ipu_trace_events=True)
    events, _ = traced_in_session()
    assert kinds(events) == [*KINDS, "EXECUTE"]
    assert not ipu.utils.extract_compile_reports(events) + ipu.utils.extract_execute_reports(events)


@pytest.mark.parametrize(("options", "has_report"), [({"max_report_size": 10}, False), ({}, True)])
def test_text_of_an_eager_call(options: dict[str, int], has_report: bool) -> None:
    configure(True, enable_poplar_reports_text=True, report_every_nth_execution=1, **options)
    strategy = ipu.ipu_strategy.IPUStrategy()
    strategy.run(tf.function(lambda x: x + 1.0), [tf.ones(3)])
    events = gen_ipu_ops.ipu_event_trace()
    assert kinds(events) == KINDS
    reports = ipu.utils.extract_compile_reports(events.numpy())
    assert ["Memory: fits" in report for _, report in reports] == [True] * has_report


def test_no_events_unless_asked_for() -> None:
    configure()
    events, _ = traced_in_session()
    assert kinds(events) == []
