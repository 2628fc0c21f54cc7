"""Advice on a pipeline: why its IPUs wait, and the cost of transfers between them."""

from __future__ import annotations

from engine.profile.step_costs import PipelineEstimate
from engine.report.numbers import count, percent

WORTH_SAYING = 0.1
Words = tuple[str, str, float]
"""A title, a text, and the affected share of a step."""


def bubble_advice(pipeline: PipelineEstimate) -> Words | None:
    """The main cause of bubbles: the schedule's ramp, the longest stage, or no overlap; None if bubbles are small."""
    share, before = pipeline.bubble_share, cycles_before_update(pipeline)
    if share <= WORTH_SAYING or not before:
        return None
    what = "update" if pipeline.training else "execution"
    where = "the cycles before the update" if pipeline.training else "an execution"
    text = f"IPUs wait for {percent(share)} of {where}. "
    if pipeline.schedule == "Sequential":
        text += "In a Sequential schedule one IPU works at a time; Grouped or Interleaved overlap micro-batches."
        return "Fill the pipeline", text, share
    ramp = max(0, before - pipeline.micro_batches * pipeline.period) / before
    if ramp >= share / 2:
        text += (
            f"The pipeline fills and drains for {percent(ramp)} of them; more than {pipeline.micro_batches} "
            f"micro-batches for each {what} make that share smaller."
        )
        return "Fill the pipeline", text, ramp
    works = pipeline.works
    longest = max(range(len(works)), key=works.__getitem__)
    text += (
        f"Stage {longest} takes {count(works[longest])} cycles for a micro-batch, the mean is "
        f"{count(sum(works) / len(works))}: move layers out of it, or let model.plan_pipeline() choose the cuts."
    )
    return "Balance the stages", text, share - ramp


def link_advice(pipeline: PipelineEstimate, total: int) -> Words | None:
    """Share of transfers between IPUs and their syncs in a step of `total` cycles; None if it is small."""
    links, syncs = pipeline.between_ipus
    share = (links + syncs) / total
    if share <= WORTH_SAYING:
        return None
    text = (
        f"Transfers between IPUs take {percent(links / total)} of the step, their syncs {percent(syncs / total)}. "
        "Cut between layers with small activations. Larger micro-batches need fewer syncs for as many samples."
    )
    return "Exchange less between IPUs", text, share


def cycles_before_update(pipeline: PipelineEstimate) -> int:
    """Cycles from the first micro-batch to the end of the last, of which bubbles are shares."""
    return sum(cost.cycles for cost in pipeline.critical if cost.kind != "update")
