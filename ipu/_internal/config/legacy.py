"""The options and verification keys of programs older than IPUConfig."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from ipu._internal.config.category import Category, option
from ipu._internal.config.enumerations import ExecutionProfileType
from ipu._internal.config.ipu_config import IPUConfig


class Profiling(Category):
    """Options of older programs for reports and events."""

    enable_compilation_trace: bool = option(False, "Compilation reports and IPU trace events.")
    enable_ipu_trace_events: bool = option(False, "IPU trace events.")
    enable_poplar_reports_text: bool = option(False, "Textual report summary.")
    enable_poplar_reports_cbor: bool = option(False, "CBOR reports.")
    enable_poplar_graph: bool = option(False, "The serialized graph among the compilation events.")
    execution_trace_type: ExecutionProfileType = option(
        ExecutionProfileType.NO_PROFILE, "What the execution profile holds."
    )
    report_every_nth_execution: int = option(0, "An execution report on every nth execution; 0: only one.")
    max_report_size: int = option(0x10000000, "The largest report in bytes.")
    report_directory: str = option("", "Directory for reports; '' puts them into the events.")
    graph_options: dict = option({}, "Options of the graph report.")
    execution_options: dict = option({}, "Options of the execution report.")


class IpuOptions(IPUConfig):
    """A configuration with the options that IPUConfig no longer has."""

    retain_control_dependencies: bool = option(False, "Pass control dependencies of the graph to the compiler.")
    use_verified_transfers: bool = option(False, "Whether transfers are verified.")
    verification_options: dict = option({}, "Key and start id of each kind of verified transfer.")
    profiling: Profiling


@dataclass
class KeyId:
    """The key of a verified transfer, and the id of its first message; kept, without effect: nothing is verified here.

    Args:
        key: the number of the key.
        start_id: the id of the first message; -1 for one that is not set.
    """

    key: int = 0
    start_id: int = -1


def _feeds() -> defaultdict[str, KeyId]:
    return defaultdict(KeyId)


@dataclass
class VerificationOptions:
    """Store pairs of key / id to use for each type of data used in the graph; without effect: nothing is verified here.

    Args:
        inputs, outputs: the KeyId of inputs and of outputs that are no parameters.
        input_parameters, output_parameters: the KeyId of variables, on their way to the device and from it.
        infeeds, outfeeds: a KeyId for each name of a queue, in a dictionary that makes missing ones.
        checkpoint_in, checkpoint_out: the KeyId of checkpoints that are read and written.
    """

    inputs: KeyId = field(default_factory=KeyId)
    input_parameters: KeyId = field(default_factory=KeyId)
    outputs: KeyId = field(default_factory=KeyId)
    output_parameters: KeyId = field(default_factory=KeyId)
    infeeds: defaultdict[str, KeyId] = field(default_factory=_feeds)
    outfeeds: defaultdict[str, KeyId] = field(default_factory=_feeds)
    checkpoint_in: KeyId = field(default_factory=KeyId)
    checkpoint_out: KeyId = field(default_factory=KeyId)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries of keys and ids."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: {feed: asdict(key) for feed, key in value.items()} if isinstance(value, dict) else asdict(value)
            for name, value in plain.items()
        }
