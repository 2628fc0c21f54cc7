"""Cuts into stages, compared with all possible cuts, with costs added up value by value."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest

from engine.partition.schedule import devices_of, make_schedule
from engine.profile.links import transfer_cycles
from engine.profile.schedule_timing import lay_out
from engine.profile.stage_balance import Balancer, Crossing, LayerCost, LayerProfile
from engine.profile.step_costs import PartCost
from engine.target import target

MK2 = target("ipu2")
SCHEDULES = ("Grouped", "Interleaved", "Sequential")


def random_profile(seed: int, layers: int = 7, uncut: frozenset[int] = frozenset(), training: bool = True):
    rng = np.random.default_rng(seed)
    costs = tuple(
        LayerCost(f"layer_{k}", *(int(n) for n in rng.integers(1, 5000, 2)), int(rng.integers(0, 10**6)))
        for k in range(layers)
    )
    crossings = []
    for made in range(layers - 1):
        behind = rng.choice(np.arange(made, layers), 2)
        ahead = tuple(sorted({made + 1, *(int(k) for k in behind if k > made)}))
        size, copy = (int(n) for n in rng.integers(1, [10**6, 300]))
        crossings.append(Crossing(size, made, ahead, tuple({int(k) for k in behind}), copy=copy))
        crossings.append(Crossing(size, made + 1, (), (made,), is_gradient=True))
    return LayerProfile(costs, tuple(crossings), uncut, training)


def expected_stage(profile, schedule, stage, first, end, sync):
    """Cycles of the parts, and the bytes, of a stage of layers `first` to `end` - 1, added up value by value."""
    inside = set(range(first, end))
    forward = sum(profile.layers[k].forward for k in inside)
    backward = sum(profile.layers[k].backward for k in inside)
    again, bytes_held = forward, sum(profile.layers[k].always_bytes for k in inside)
    came = went = stash = one = copies = 0
    mode = schedule.recomputation if stage + 1 < schedule.stages else "none"
    recomputes = mode != "none"
    for value in profile.crossings:
        is_ahead, is_behind = bool(inside & set(value.forward)), bool(inside & set(value.backward))
        if value.is_gradient:
            went += value.bytes if is_behind and value.made not in inside else 0
            continue
        arrives = is_ahead and value.made not in inside
        came += value.bytes if arrives else 0
        went += value.bytes if is_behind and not is_ahead and value.made not in inside else 0
        waits = is_behind and (value.made in inside or arrives)
        one += value.bytes if waits else 0
        if arrives if recomputes else waits:
            stash += value.bytes
            copies += value.copy
    depth = schedule.stash_depths()[stage]
    if not profile.training:
        arriving = transfer_cycles(came, stage - 1, stage, MK2) if came else 0
        return {"forward": forward + arriving + sync}, bytes_held + came
    copies += MK2.superstep_sync if copies else 0
    cycles = {
        "forward": forward + copies + sync + (transfer_cycles(came, stage - 1, stage, MK2) if came else 0),
        "backward": backward + copies + sync + (transfer_cycles(went, stage + 1, stage, MK2) if went else 0),
        "recompute": again + sync if mode == "then_backpropagate" else 0,
    }
    if mode == "with_backpropagation":
        cycles["backward"] += again
    return cycles, bytes_held + stash * depth + one


def all_cuts(profile, stages, schedule, sync, limit):
    """The period of every legal cut that fits, from its schedule laid out in time."""
    layers = len(profile.layers)
    for cuts in combinations(sorted(set(range(1, layers)) - profile.uncut), stages - 1):
        edges = (0, *cuts, layers)
        found = [expected_stage(profile, schedule, s, edges[s], edges[s + 1], sync) for s in range(stages)]
        if all(held <= limit for _, held in found):
            costs = {(k, s): PartCost(k, s, n) for s, (cycles, _) in enumerate(found) for k, n in cycles.items()}
            yield cuts, lay_out(schedule, costs).period, max(held for _, held in found)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_no_other_cut_has_a_shorter_period(seed, kind, stages) -> None:
    profile = random_profile(seed)
    schedule = make_schedule(kind, devices_of(stages, None), 2 * stages, training=True)
    cuts = list(all_cuts(profile, stages, schedule, MK2.external_sync_cycles(stages), np.inf))
    for limit in (np.inf, float(np.median([held for _, _, held in cuts]))):
        allowed = {at: (period, held) for at, period, held in cuts if held <= limit}
        best = Balancer(profile, stages, MK2, kind=kind, micro_batches=2 * stages).best(limit)
        assert best is not None and best.cuts in allowed
        assert best.period == allowed[best.cuts][0] == min(period for period, _ in allowed.values())
        assert max(stage.bytes for stage in best.stages) == allowed[best.cuts][1]


@pytest.mark.parametrize(
    ("kind", "recomputation"),
    [
        ("Grouped", "then_backpropagate"),
        ("Grouped", "with_backpropagation"),
        ("Interleaved", "then_backpropagate"),
        ("Sequential", "with_backpropagation"),
    ],
)
def test_with_recomputation(kind, recomputation) -> None:
    profile = random_profile(11)
    schedule = make_schedule(kind, devices_of(3, None), 6, training=True, recomputation=recomputation)
    balancer = Balancer(profile, 3, MK2, kind=kind, micro_batches=6, recomputation=recomputation)
    best = balancer.best()
    allowed = {at: period for at, period, _ in all_cuts(profile, 3, schedule, MK2.external_sync_cycles(3), np.inf)}
    assert best is not None and best.period == allowed[best.cuts] == min(allowed.values())
    without = Balancer(profile, 3, MK2, kind=kind, micro_batches=6)
    assert balancer.stage(0, 0, 5).stash_bytes < without.stage(0, 0, 5).stash_bytes
    assert balancer.stage(2, 2, 7) == without.stage(2, 2, 7), "the last stage recomputes nothing"


def test_inference() -> None:
    profile = random_profile(5, training=False)
    schedule = make_schedule("Grouped", devices_of(3, None), 3, training=False)
    best = Balancer(profile, 3, MK2, kind="Grouped", micro_batches=3).best()
    allowed = {at: period for at, period, _ in all_cuts(profile, 3, schedule, MK2.external_sync_cycles(3), np.inf)}
    assert best is not None and best.period == allowed[best.cuts] == min(allowed.values())


def test_layers_that_share_weights_stay_together() -> None:
    profile = random_profile(3, uncut=frozenset({2, 3, 4}))
    best = Balancer(profile, 3, MK2).best()
    assert best is not None and not set(best.cuts) & {2, 3, 4}
    assert Balancer(random_profile(3, uncut=frozenset(range(1, 6))), 3, MK2).best() is None


def test_no_cut_fits() -> None:
    profile = random_profile(1)
    most = max(layer.always_bytes for layer in profile.layers)
    assert Balancer(profile, 4, MK2).best(most - 1) is None
    assert Balancer(profile, 8, MK2).best() is None


def test_every_layer_has_its_stage() -> None:
    best = Balancer(random_profile(2), 4, MK2).best()
    assert best is not None
    stages = [best.stage_of(layer) for layer in range(7)]
    assert stages == sorted(stages) and set(stages) == {0, 1, 2, 3}
    assert [stages.index(s) for s in (1, 2, 3)] == list(best.cuts)


def test_two_hundred_layers_take_little_time() -> None:
    """Four times the layers take some sixteen times as long, where all partitions would take 4^7 times as long."""
    seconds = []
    for layers in (50, 200):
        profile = random_profile(9, layers=layers)
        start = time.process_time()
        best = Balancer(profile, 8, MK2).best()
        seconds.append(time.process_time() - start)
    assert seconds[1] < 100 * seconds[0]
    assert best is not None
    assert best.period == Balancer(profile, 8, MK2).layout(best).period
