"""What a pipeline keeps on each IPU while it runs, and how long its IPUs wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.ir import Instruction
from engine.partition.crossings import PartPlan
from engine.partition.schedule import Schedule
from engine.partition.stages import Placement


@dataclass(frozen=True, slots=True)
class StageAccount:
    """One stage: `micro_batches` are those whose activations it holds at most, `activation_bytes` those of one.

    `stashed_bytes` wait at most for its backward part, `arriving_bytes` lie between it and other stages.
    """

    stage: int
    ipus: tuple[int, ...]
    micro_batches: int
    activation_bytes: int
    stashed_bytes: int
    arriving_bytes: int


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """What one replica of a pipeline stores, and for each IPU the share of the slots in which it waits."""

    schedule: str
    slots: int
    stages: tuple[StageAccount, ...]
    bubbles: dict[int, float]

    @property
    def bytes_by_ipu(self) -> dict[int, int]:
        """What waits on each IPU; the parts of concurrent stages are taken to store alike."""
        found = dict.fromkeys(self.bubbles, 0)
        for stage in self.stages:
            for ipu in stage.ipus:
                found[ipu] += (stage.stashed_bytes + stage.arriving_bytes) // len(stage.ipus)
        return found

    def table(self) -> str:
        """The account as text: a line for each stage, one for each IPU."""
        lines = [f"Pipeline schedule: {self.schedule}, {self.slots} slots"]
        lines.append(f"{'stage':>5} {'IPU':>7} {'held':>5} {'bytes of one':>14} {'stashed':>14} {'arriving':>14}")
        for stage in self.stages:
            ipus = ",".join(map(str, stage.ipus))
            amounts = (stage.activation_bytes, stage.stashed_bytes, stage.arriving_bytes)
            lines.append(
                f"{stage.stage:>5} {ipus:>7} {stage.micro_batches:>5} " + " ".join(f"{each:>14,}" for each in amounts)
            )
        lines += [
            f"IPU {ipu}: {held:,} bytes, waits in {self.bubbles[ipu]:.1%} of the slots"
            for ipu, held in self.bytes_by_ipu.items()
        ]
        return "\n".join(lines)


def report_on(schedule: Schedule, placement: Placement, plans: Sequence[PartPlan]) -> PipelineReport:
    """The account of a schedule's parts. An activation that several stages need waits on the IPUs of each."""
    parts = {schedule.position(part): part for part in schedule.parts if part.kind != "recompute"}
    depths = schedule.stash_depths()
    accounts = []

    def crossing(plan: PartPlan) -> list[Instruction]:
        """What comes from other parts. One micro-batch at a time reads variables where they lie."""
        return [v for v in plan.reads if schedule.kind != "Sequential" or v.opcode != "parameter"]

    for stage, ipus in enumerate(schedule.devices):
        backward = plans[2 * schedule.stages - 1 - stage]
        stashed = [v for v in crossing(backward) if schedule.training and placement.position[v] <= stage]
        arriving: dict[Instruction, int] = {}
        for plan in (plans[stage], backward):
            for value in crossing(plan):
                if value not in stashed:
                    depth = schedule.depth(parts[placement.position[value]], parts[plan.position])
                    arriving[value] = max(arriving.get(value, 0), depth)
        one = sum(value.array_shape.bytes for value in stashed)
        between = sum(value.array_shape.bytes * depth for value, depth in arriving.items())
        accounts.append(StageAccount(stage, ipus, depths[stage], one, one * depths[stage], between))
    return PipelineReport(schedule.kind, schedule.slots, tuple(accounts), schedule.bubbles())
