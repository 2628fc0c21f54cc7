"""Variables are on the IPUs of the stages that use them: stages that share one must be on the same IPUs."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import ConfigurationError
from engine.ir import Instruction
from engine.ir.op_names import stage_in
from engine.partition.pipeline import Pipelined
from engine.partition.pipeline_report import is_state


def check_shared_variables(pipelined: Pipelined, names: Mapping[int, str]) -> None:
    """Raises ConfigurationError for a weight that operations of two stages on different IPUs read.

    Variables that each micro-batch changes (states of random numbers) are exempt, and so are uses outside of all
    stages' scopes (a regularisation loss). `names` are names of variables by their parameter's number.
    """
    source, devices = pipelined.source, pipelined.schedule.devices
    first_use: dict[Instruction, int] = {}
    for instruction in source.module.entry.instructions:
        stage = stage_in(instruction.op_name)
        if stage is None or stage >= len(devices):
            continue
        for operand in instruction.operands:
            number = operand.get("parameter_number")
            if operand.opcode != "parameter" or source.roles[number] != "variable" or is_state(operand, source.parts):
                continue
            first = first_use.setdefault(operand, stage)
            if devices[first] != devices[stage]:
                mapping = [each[0] if len(each) == 1 else list(each) for each in devices]
                raise ConfigurationError(
                    f"Expected stages that share a variable on one IPU. Received: device_mapping={mapping} for stages "
                    f"{min(first, stage)} and {max(first, stage)}, which both use {names.get(number, number)!r}. "
                    f"Nearest legal value: the same IPU for both, as device_mapping[{max(first, stage)}] = "
                    f"{mapping[min(first, stage)]}."
                )
