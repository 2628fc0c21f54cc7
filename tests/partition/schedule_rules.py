"""The invariants of pipeline schedules."""

from __future__ import annotations

from engine.partition.schedule import Kind, Row, Schedule


def verify_schedule(schedule: Schedule) -> None:
    """Raises AssertionError unless each part runs once for each micro-batch, in order and on the right IPUs."""
    slots, stages = slots_of(schedule), range(schedule.stages)
    order: list[tuple[Kind, int]] = [("forward", stage) for stage in stages]
    for stage in reversed(stages if schedule.training else ()):
        again = schedule.recomputation == "then_backpropagate" and stage + 1 < schedule.stages
        order += [("recompute", stage)] if again else []
        order += [("backward", stage)]
    micro_batches = range(schedule.micro_batches)
    expected: set[tuple[Kind, int, int | None]] = {(*part, m) for part in order for m in micro_batches}
    updates: set[tuple[Kind, int, int | None]] = {("update", stage, None) for stage in stages if schedule.training}
    require(set(slots) == expected | updates, "each part runs once")
    for micro_batch in micro_batches:
        # Recomputations may come before or after the gradients of later stages.
        for kind in ("recompute", "backward"):
            when = [slots[*part, micro_batch] for part in order if part[0] != kind]
            require(when == sorted(set(when)), f"order of micro-batch {micro_batch}")
        for kind, stage in order:
            if kind == "recompute":
                again, backward = slots[kind, stage, micro_batch], slots["backward", stage, micro_batch]
                require(again < backward, f"recomputation of micro-batch {micro_batch}")
    last = max(row.slot for row in schedule.rows if row.kind != "update")
    require(all(slots[update] > last for update in updates), "updates come last")


def slots_of(schedule: Schedule) -> dict[tuple[Kind, int, int | None], int]:
    """The slot in which each part of each micro-batch runs; it must be the same on all its IPUs."""
    found: dict[tuple[Kind, int, int | None], list[Row]] = {}
    positions: set[tuple[int, int]] = set()
    for row in schedule.rows:
        found.setdefault((row.kind, row.stage, row.micro_batch), []).append(row)
        require((row.slot, row.ipu) not in positions, f"IPU {row.ipu} does one thing in slot {row.slot}")
        positions.add((row.slot, row.ipu))
    for (_, stage, _), rows in found.items():
        together = len({row.slot for row in rows}) == 1
        require(
            together and sorted(row.ipu for row in rows) == sorted(set(schedule.devices[stage])),
            f"IPUs of stage {stage}",
        )
    require([row.slot for row in schedule.rows] == sorted(row.slot for row in schedule.rows), "rows are in order")
    return {key: rows[0].slot for key, rows in found.items()}


def require(holds: bool, what: str) -> None:
    assert holds, f"A pipeline's schedule is broken: {what}."
