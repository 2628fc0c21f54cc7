"""Contents of an executable file: a module, roles of its parameters, values, and names of inputs and outputs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import OF_THE_ENVIRONMENT, InternalError, InvalidFile, ResourceLimit, UnsupportedOperation
from engine.files.arrays import ArrayReader, ArrayWriter, read_array_shape, write_array_shape
from engine.files.attributes import a_list, an_object, text, texts
from engine.files.checks import check_module
from engine.files.container import pack, parse, unpack
from engine.files.modules import read_module, write_module
from engine.files.signature import Signature, TensorInfo, tensor_info
from engine.ir import Module, Shape, shape_of
from engine.ir.device_operations import calls_of_host_functions, config_of, queue_signatures
from engine.ir.shape import ELEMENT_TYPES
from engine.private_files import read_regular
from engine.resource_limits import above, current_limits, interruptible, within_seconds
from engine.whole_files import write_whole

SUFFIX = ".poplar_exec"
ROLES = frozenset({"feed", "variable", "constant"})
SECTIONS = {"program", "arrays"}


@dataclass(frozen=True, slots=True)
class ExecutableFile:
    """A program and its values, as they are written to a file.

    `roles` has "feed", "variable" or "constant" for each entry parameter. `constants` has the values of constants, and
    `variables` the initial values of variables, by parameter number. The caller that loads the program passes values of
    all other variables, by their names in `variable_names`. `metadata` is free text.
    """

    module: Module
    roles: list[str]
    constants: dict[int, np.ndarray]
    signature: Signature
    variables: dict[int, np.ndarray] = field(default_factory=dict)
    variable_names: dict[int, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The module's name."""
        return self.module.name

    def missing(self) -> dict[str, TensorInfo]:
        """The variables that have no value in the file, by name, in the order of the parameters."""
        missing = {}
        for number, role in enumerate(self.roles):
            if role == "variable" and number not in self.variables:
                name = self.variable_names.get(number, f"variable_{number}")
                missing[name] = tensor_info(name, self.module.entry.parameters[number].array_shape)
        return missing

    def outputs(self) -> list[Shape]:
        """The shapes of the results that update no variable."""
        taken = set(self.module.aliases.values())
        return [result.array_shape for number, result in enumerate(self.module.results) if number not in taken]


def write_executable(path: str | Path, file: ExecutableFile) -> None:
    """Writes an executable file atomically.

    Raises OSError if it cannot be written, InternalError for parts that contradict each other.
    """
    write_whole(Path(path), to_bytes(file))


def read_executable(path: str | Path) -> ExecutableFile:
    """Reads an executable file. Nothing in it is trusted: it has data, and no code.

    Raises FileNotFoundError and other OSErrors; InvalidFile, a ValueError, for a file that is truncated, altered, of
    another version or of another kind.
    """
    return from_bytes(read_program(path), str(path))


def read_program(path: str | Path) -> bytes:
    """The content of a file that may be a program. Raises OSError, InvalidFile and ResourceLimit."""
    most = current_limits().most_file_bytes
    try:
        return read_regular(path, most)
    except ResourceLimit as error:
        raise above("bytes", f"{most} bytes in {path}", "a larger file") from error


def check_exportable(module: Module) -> None:
    """Raise UnsupportedOperation for a module that calls functions of the host, which only this process can run."""
    call = next(calls_of_host_functions(module), None)
    if call is not None:
        raise UnsupportedOperation(
            f"Expected a program that other processes can run. Received: one that calls the host function "
            f"{config_of(call)['name']!r} ({call.op_name or call.name}), which is only in this process. Leave the "
            f"call out of the exported program, or call the function on the results."
        )


def to_bytes(file: ExecutableFile) -> bytes:
    """The contents of the file.

    Raises UnsupportedOperation for a program that calls functions of this process, InternalError for parts that
    contradict each other.
    """
    check_exportable(file.module)
    _check(file)
    arrays = ArrayWriter()
    program = {
        "module": write_module(file.module, arrays),
        "roles": file.roles,
        "constants": {str(number): arrays.add(value) for number, value in file.constants.items()},
        "variables": {str(number): arrays.add(value) for number, value in file.variables.items()},
        "variable_names": {str(number): name for number, name in file.variable_names.items()},
    }
    header = {
        "metadata": file.metadata,
        "inputs": [_write_info(each) for each in file.signature.inputs],
        "outputs": [_write_info(each) for each in file.signature.outputs],
        "queues": _queues(file.module),
        "made_by": {"software-ipu": _version(), "machine": platform.machine()},
    }
    text_of_program = json.dumps(program, separators=(",", ":"), allow_nan=False)
    return pack(header, {"program": text_of_program.encode(), "arrays": arrays.content()})


def from_bytes(data: bytes, origin: str) -> ExecutableFile:
    """Read the contents of a file, which messages call `origin`. Raises InvalidFile and ResourceLimit."""
    with within_seconds(origin), interruptible():
        header, sections = unpack(data, origin)
        try:
            return _file(header, sections, origin)
        except ResourceLimit as error:
            raise ResourceLimit(f"{origin}: {error}") from error
        except (InvalidFile, InternalError) as error:
            raise InvalidFile(f"Expected a valid executable in {origin}. Received: {error}") from error
        except OF_THE_ENVIRONMENT:
            raise
        except Exception as error:  # a rule may fail in any way on a malformed module: rules trust the module
            raise InvalidFile(f"Expected a valid executable in {origin}. Received: {error!r:.200}") from error


def _file(header: dict[str, Any], sections: dict[str, memoryview], origin: str) -> ExecutableFile:
    if set(sections) != SECTIONS:
        raise InvalidFile(f"Expected the sections {sorted(SECTIONS)}. Received: {sorted(sections)}.")
    arrays = ArrayReader(sections["arrays"])
    most = current_limits()
    if len(sections["program"]) > most.program_bytes:
        expected = f"{most.program_bytes} bytes of JSON, for {most.instructions} instructions"
        raise above("instructions", expected, f"{len(sections['program'])} bytes")
    program = parse(sections["program"], origin)
    module = read_module(program["module"], arrays)
    check_module(module)
    names = {_number(k, program): text(v) for k, v in an_object(program["variable_names"]).items()}
    file = ExecutableFile(
        module,
        [text(each) for each in a_list(program["roles"])],
        {_number(k, program): arrays.read(v) for k, v in an_object(program["constants"]).items()},
        Signature(*(tuple(_read_info(e) for e in a_list(header[part])) for part in ("inputs", "outputs"))),
        {_number(k, program): arrays.read(v) for k, v in an_object(program["variables"]).items()},
        names,
        texts(header["metadata"]),
    )
    _check(file)
    return file


def _check(file: ExecutableFile) -> None:
    """Raises InternalError unless roles, values and signature fit the module."""
    parameters = file.module.entry.parameters
    if len(file.roles) != len(parameters) or not set(file.roles) <= ROLES:
        raise InternalError(f"Expected a role for each of {len(parameters)} parameters. Received: {file.roles!r:.200}.")
    shapes = [each.shape for each in (*parameters, *file.module.results)]
    if not all(isinstance(shape, Shape) for shape in shapes):
        raise InternalError("Expected arrays as parameters and results of a program. Received: a tuple.")
    _check_values("constant", file.constants, file, [n for n, role in enumerate(file.roles) if role == "constant"])
    _check_values("variable", file.variables, file, list(file.variables))
    if any(file.roles[number] != "variable" for number in (*file.module.aliases, *file.variable_names)):
        raise InternalError("Expected updates of variables, and names of them. Received: those of other parameters.")
    if len(set(file.missing())) != sum(role == "variable" for role in file.roles) - len(file.variables):
        raise InternalError("Expected variables of different names. Received: the same name twice.")
    feeds = [p.array_shape for p, role in zip(parameters, file.roles, strict=True) if role == "feed"]
    for part, infos, expected in (
        ("inputs", file.signature.inputs, feeds),
        ("outputs", file.signature.outputs, file.outputs()),
    ):
        if [(i.shape, i.dtype) for i in infos] != [(s.dimensions, s.dtype) for s in expected]:
            received = ", ".join(f"{i.name}: {i.dtype}{list(i.shape)}" for i in infos)
            raise InternalError(f"Expected {part} of {', '.join(map(str, expected)) or 'none'}. Received: {received}.")
        if len({i.name for i in infos}) != len(infos):
            raise InternalError(f"Expected {part} of different names. Received: {[i.name for i in infos]}.")


def _check_values(role: str, values: Mapping[int, np.ndarray], file: ExecutableFile, numbers: list[int]) -> None:
    if sorted(values) != sorted(numbers):
        raise InternalError(f"Expected values of the {role}s {numbers}. Received: {sorted(values)}.")
    for number, value in values.items():
        if not 0 <= number < len(file.roles) or file.roles[number] != role:
            raise InternalError(f"Expected values of {role}s. Received: one of parameter {number}.")
        shape = file.module.entry.parameters[number].shape
        if shape_of(value) != shape:
            raise InternalError(f"Expected {shape} for parameter {number}. Received: {shape_of(value)}.")


def _write_info(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "shape": write_array_shape(Shape(ELEMENT_TYPES[info.dtype], info.shape))}


def _read_info(value: Any) -> TensorInfo:
    return tensor_info(text(value["name"]), read_array_shape(value["shape"]))


def _queues(module: Module) -> dict[str, Any]:
    """The program's queues, for people and tools to read; the reader derives them from the module."""
    return {
        name: {"direction": queue.direction, "shapes": [write_array_shape(s) for s in queue.shapes]}
        for name, queue in queue_signatures(module).items()
    }


def _number(key: str, program: Mapping[str, Any]) -> int:
    """The parameter number in a key; raises InvalidFile for any other string."""
    if not key.isascii() or not key.isdecimal() or str(int(key[:12])) != key or int(key) >= len(program["roles"]):
        raise InvalidFile(f"Expected a parameter number. Received: {key!r:.80}.")
    return int(key)


def _version() -> str:
    try:
        return packages.version("software-ipu")
    except packages.PackageNotFoundError:
        return "unknown"
