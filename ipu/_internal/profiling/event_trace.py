"""Event traces: this project's reports on compilations and executions, as older programs read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import tensorflow as tf

from engine.ir.printer import print_module
from engine.program.printer import print_program
from ipu._internal.compiler.trace_events import COMPILE_BEGIN, COMPILE_END, EXECUTE, Event, taken_events
from ipu._internal.graphs.session_operations import building_graph, host_operation
from ipu._internal.profiling.event_message import IpuTraceEvent
from ipu._internal.profiling.make_report import report_of_compiled

Events = Iterable[bytes]


def ipu_event_trace(name: str | None = None) -> tf.Tensor:
    """The events of all programs since the last call, where `create_ipu_config(profiling=True)` or
    `create_ipu_config(enable_ipu_events=True)` asks for them.

    A compilation report is that of `ipu.profile`, as JSON, or as text by `use_poplar_text_report`; an execution report
    has measured seconds, and the estimate of cycles on a chip.

    Args:
        name: optional op name.

    Returns:
        Serialized IpuTraceEvent messages, a string tensor [n]. In a tf.Graph each run of the session takes the events
        until then.
    """
    with tf.name_scope(name or "ipu_event_trace"):
        if not building_graph():
            return tf.constant(_serialized(), tf.string)
        return host_operation(lambda: [_serialized()], [], [tf.TensorSpec([None], tf.string)])[0]


def _serialized() -> np.ndarray:
    return np.array([_message(event).SerializeToString() for event in taken_events()], object)


def _message(event: Event) -> Any:
    message = IpuTraceEvent(timestamp=event.timestamp, type=IpuTraceEvent.Type.Value(event.type))
    module = event.program.module
    content = getattr(message, event.type.lower())
    content.module_name = module.name.encode()
    if event.type == COMPILE_BEGIN:
        content.xla_graph = print_module(module).encode()
    elif event.type == COMPILE_END:
        content.duration = round(event.seconds * 1e6)
        if event.options.enable_compilation_trace:
            report = report_of_compiled(event.program, module.name)
            text = report.text() if event.options.enable_poplar_reports_text else report.json()
            content.compilation_report = _limited(text, event)
        if event.options.enable_poplar_graph:
            content.poplar_graph = _limited(print_program(event.program.engine_program), event)
    elif event.type == EXECUTE and event.has_report:
        cycles = event.steps * report_of_compiled(event.program, module.name).cycles["total"]
        measured = {"steps": event.steps, "measured_seconds": event.seconds, "estimated_cycles": cycles}
        lines = "".join(f"{key}: {value}\n" for key, value in measured.items())
        text = lines if event.options.enable_poplar_reports_text else json.dumps(measured)
        content.execution_report = _limited(text, event)
    return message


def _limited(text: str, event: Event) -> bytes:
    """A report's bytes; none if it is larger than the configured limit."""
    data = text.encode()
    return data if len(data) <= event.options.max_report_size else b""


def extract_all_events(events: Events) -> list[Any]:
    """Extract a list containing each event as an event object.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        A list of IpuTraceEvent messages.
    """
    return [IpuTraceEvent.FromString(bytes(event)) for event in np.ravel(np.asarray(events, object))]


def extract_all_strings_from_event_trace(events: Events) -> str:
    """Extract a concatenation of all data strings from an IPU event trace: time, type, module and report of each.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        The text, some lines for each event; times are UTC in ISO format.
    """
    parts = []
    for event in extract_all_events(events):
        content = _content(event)
        title = IpuTraceEvent.Type.Name(event.type).replace("_", " ").capitalize()
        time = datetime.fromtimestamp(event.timestamp, UTC).isoformat()
        data = [value.decode() for field, value in content.ListFields() if isinstance(value, bytes)]
        parts.append("\n".join(["-" * 70, f"=> @ {time}: {title}: {data[0]}", *data[1:], ""]))
    return "".join(parts)


def extract_all_types_from_event_trace(events: Events) -> list[int]:
    """Return a list of the types of each event in an event trace.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        Values of IpuTraceEvent.Type, integers, one for each event.
    """
    return [event.type for event in extract_all_events(events)]


def extract_compile_reports(events: Events) -> list[tuple[str, str]]:
    """Get a list of all compiler reports in the event list.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        Tuples of the module name and the report, JSON or text; events without a report have none.
    """
    return _extracted(events, "compile_end", "compilation_report")


def extract_execute_reports(events: Events) -> list[tuple[str, str]]:
    """Get a list of all execution reports in the event list.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        Tuples of the module name and the report, JSON or text, of steps, measured seconds and estimated cycles; events
        without a report have none.
    """
    return _extracted(events, "execute", "execution_report")


def extract_poplar_serialized_graphs(events: Events) -> list[tuple[str, str]]:
    """Get a list of all graphs in the event list; the graph is this project's text of a program, not Poplar's.

    Args:
        events: serialized events, as `ipu_event_trace` returns them.

    Returns:
        Tuples of the module name and the compute sets of its program, as text; events without a graph have none.
    """
    return _extracted(events, "compile_end", "poplar_graph")


def _content(event: Any) -> Any:
    return getattr(event, IpuTraceEvent.Type.Name(event.type).lower())


def _extracted(events: Events, type: str, field: str) -> list[tuple[str, str]]:
    """Module and text of a field, where it is not empty, of the events of a type."""
    contents = [getattr(event, type) for event in extract_all_events(events)]
    return [(each.module_name.decode(), text) for each in contents if (text := getattr(each, field).decode())]
