"""The protocol buffer message of an event, with the fields that programs read."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "tensorflow"
TYPES = ("COMPILE_BEGIN", "COMPILE_END", "HOST_TO_DEVICE_TRANSFER", "DEVICE_TO_HOST_TRANSFER", "LOAD_ENGINE", "EXECUTE")
CONTENTS: dict[str, dict[str, int]] = {
    "compile_begin": {"module_name": FieldDescriptorProto.TYPE_BYTES, "xla_graph": FieldDescriptorProto.TYPE_BYTES},
    "compile_end": {
        "module_name": FieldDescriptorProto.TYPE_BYTES,
        "compilation_report": FieldDescriptorProto.TYPE_BYTES,
        "duration": FieldDescriptorProto.TYPE_INT64,  # microseconds
        "poplar_graph": FieldDescriptorProto.TYPE_BYTES,
    },
    "load_engine": {"module_name": FieldDescriptorProto.TYPE_BYTES},
    "execute": {"module_name": FieldDescriptorProto.TYPE_BYTES, "execution_report": FieldDescriptorProto.TYPE_BYTES},
}
"""The messages inside of an event, by their fields."""


def _add(message: DescriptorProto, name: str, type: int, type_name: str = "") -> None:
    field = message.field.add(name=name, number=len(message.field) + 1, type=type, label=1)
    if type_name:
        field.type_name = f".{PACKAGE}.IpuTraceEvent.{type_name}"


def _message() -> Any:
    file = FileDescriptorProto(name="ipu/trace.proto", package=PACKAGE, syntax="proto3")
    event = file.message_type.add(name="IpuTraceEvent")
    types = event.enum_type.add(name="Type")
    for number, type in enumerate(TYPES):
        types.value.add(name=type, number=number)
    _add(event, "timestamp", FieldDescriptorProto.TYPE_DOUBLE)
    _add(event, "type", FieldDescriptorProto.TYPE_ENUM, "Type")
    _add(event, "ordinal", FieldDescriptorProto.TYPE_INT32)
    for name, fields in CONTENTS.items():
        title = name.title().replace("_", "")
        inner = event.nested_type.add(name=title)
        for field, type_number in fields.items():
            _add(inner, field, type_number)
        _add(event, name, FieldDescriptorProto.TYPE_MESSAGE, title)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.IpuTraceEvent"))


IpuTraceEvent = _message()
