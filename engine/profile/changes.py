"""Changes of a program that does not fit, each estimated: smaller batches, float16, options, pipelining.

Memory of a program with a smaller batch or in half precision, estimated from its cost report as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from engine.frozen import frozen
from engine.profile.categories import ACTIVATIONS, EXCHANGE_BUFFERS, STREAM_BUFFERS, WEIGHTS
from engine.profile.convolution import PlannedConvolution
from engine.profile.exchange import Layouts
from engine.profile.liveness import LiveRange, follow
from engine.profile.names import ACCUMULATOR
from engine.profile.options import OPTIMIZER_STATE_VARIABLES, Assumptions
from engine.profile.plan import best_plan
from engine.profile.program_estimate import Estimate, measured
from engine.profile.recomputation import backward_begin, recomputed, recomputes
from engine.profile.splitting import most_stages, split
from engine.profile.superstep import options_of, planned_of
from engine.profile.vertices import kind_of
from engine.program.program import ComputeSet, Program


@frozen
class Lever:
    """A change, the bytes that it saves on the fullest tile, and whether the program would then fit.

    `alone` is False for several changes that suffice only together. `how` has the lines of Python that make the
    change for a Keras model.
    """

    what: str
    saves: int
    fits: bool
    alone: bool = True
    how: tuple[str, ...] = ()


@frozen
class Change:
    """Changes with which a program is estimated; the default is none.

    `batch` is the smaller batch: the micro-batch if the change `accumulates` gradients, the batch of each replica if
    there are several `replicas`; 0 keeps the batch. `assumptions` replace those of the cost report; None keeps them.
    A change that `recomputes` activations compiles the program again, and is estimated by itself only.
    """

    batch: int = 0
    accumulates: bool = False
    replicas: int = 1
    half_precision: bool = False
    assumptions: Assumptions | None = None
    ipus: int = 1
    recomputes: bool = False


CONFIGURATION = "config = ipu.config.IPUConfig()  # or your program's own"
LIBRARIES = ("matmuls", "convolutions", "slices")
MICRO_BATCHES = 8
"""Micro-batches for each stage of a proposed pipeline."""


def lines(change: Change, batch: int, before: Assumptions) -> tuple[str, ...]:
    """The lines that make a change: the configuration, then what a new model needs, then the model and its `fit`.

    `batch` is the present batch size, `before` are the present assumptions. Lines that do not begin with `model`
    come before the model is made.
    """
    return (*_before_the_model(change, before), *_of_the_model(change, batch, before))


def _before_the_model(change: Change, before: Assumptions) -> Iterator[str]:
    then = change.assumptions or before
    ipus = change.replicas * change.ipus
    options = []
    if then.available_memory_proportion != before.available_memory_proportion:
        given = f'{{"availableMemoryProportion": "{then.available_memory_proportion:g}"}}'
        options += [f"config.{library}.poplar_options = {given}" for library in LIBRARIES]
    if change.recomputes or change.ipus > 1:  # estimates of stages recompute
        options.append("config.allow_recompute = True")
    if ipus > 1:
        options.append(f"config.auto_select_ipus = {ipus}")
    if options:
        yield from (CONFIGURATION, *options, "config.configure_ipu_system()")
    if change.half_precision:
        yield 'keras.mixed_precision.set_global_policy("mixed_float16")'


def _of_the_model(change: Change, batch: int, before: Assumptions) -> Iterator[str]:
    offloads = change.assumptions is not None and bool(change.assumptions.offloaded - before.offloaded)
    of_step = change.batch or batch
    if change.ipus > 1:
        count = MICRO_BATCHES * change.ipus
        arguments = f"batch_size={of_step}, gradient_accumulation_steps_per_replica={count}"
        yield f"model.plan_pipeline({change.ipus}, {arguments}).apply()"
        yield f"model.steps_per_execution = {count}; model.fit(x, y, batch_size={of_step})"
        return
    steps = batch // of_step if change.accumulates else 1
    if offloads:  # only a program that accumulates gradients can offload them
        steps = max(steps, 2)
    if steps > 1:
        state = ", offload_weight_update_variables=True" if offloads else ""
        of_step = change.batch or batch // steps
        yield f"model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica={steps}{state})"
        yield f"model.steps_per_execution = {steps}; model.fit(x, y, batch_size={of_step})"
    elif change.batch:
        yield f"model.fit(x, y, batch_size={of_step})"


WORTH_PLANNING = 1 / 50
"""Products whose plan takes less than this fraction of a tile's memory are not replanned."""


class Batches:
    """The arrays of a program that have rows of the batch. `size` is the batch, or 0 where no feed has rows."""

    def __init__(self, program: Program, found: Estimate) -> None:
        self.program, self.found = program, found
        fed = [b.buffer.shape.dimensions for b in found.tiles.blocks if b.category == STREAM_BUFFERS and b.buffer]
        self.size = next((dimensions[0] for dimensions in fed if dimensions), 0)
        self._layouts = Layouts(program.compute_sets)
        self._variables = {tuple(sorted(b.shape.dimensions)) for b in program.variables.values()}

    def has_rows(self, dimensions: tuple[int, ...]) -> bool:
        """Whether arrays of these dimensions have rows of the batch; False if a variable has the same dimensions."""
        if not dimensions or not self.size or tuple(sorted(dimensions)) in self._variables:
            return False
        return self.size in dimensions or dimensions[0] % self.size == 0

    def scaled(self, size: int, half: bool = False) -> list[LiveRange]:
        """The live ranges with a batch of `size`, or with the present batch for 0.

        With `half` the policy is mixed_float16: Keras keeps variables and inputs in float32 and casts them.
        """
        blocks = []
        for block in self.found.tiles.blocks:
            factor = 1.0
            if block.category in (ACTIVATIONS, STREAM_BUFFERS) and block.buffer is not None:
                shape = block.buffer.shape
                factor = size / self.size if size and self.has_rows(shape.dimensions) else 1.0
                factor *= 0.5 if half and block.category == ACTIVATIONS and shape.element_type == "f32" else 1.0
            elif block.category == EXCHANGE_BUFFERS and block.placement.per_tile and block.buffer is None:
                factor = self._exchanged(self.program.compute_sets[block.first], block.placement.per_tile, size, half)
            blocks.append(replace(block, placement=block.placement.scaled(factor)))
        return blocks

    def _exchanged(self, compute_set: ComputeSet, held: int, size: int, half: bool) -> float:
        """Fraction of a compute set's exchanged bytes that remains with a batch of `size`, or in float16."""
        spans = (*compute_set.reads, *compute_set.writes)
        smaller = bool(size) and any(self.has_rows(span.buffer.shape.dimensions) for span in spans)
        if not smaller and not half:
            return 1.0
        if not compute_set.work_estimate.multiply_adds or kind_of(compute_set.work_estimate.element_type) == "integer":
            return (size / self.size if smaller else 1.0) * (0.5 if half else 1.0)
        target, assumptions = self.found.target, self.found.assumptions
        if held < WORTH_PLANNING * target.bytes_per_tile:
            return 1.0
        options, tiles = options_of(compute_set, assumptions), assumptions.compute_target(target)
        planned = [self._with_batch(each, size) if smaller else each for each in planned_of(compute_set, self._layouts)]
        if half:
            planned = [replace(each, element_type="f16") for each in planned]
        return min(1.0, max(best_plan(each, tiles, options).temporary_bytes for each in planned) / held)

    def _with_batch(self, convolution: PlannedConvolution, size: int) -> PlannedConvolution:
        """The convolution with a batch of `size`: a product has it in its rows, a gradient in the terms of its sums."""
        dimensions = convolution.size
        if dimensions.batch % self.size == 0:
            dimensions = replace(dimensions, batch=dimensions.batch // self.size * size)
        elif dimensions.inputs % self.size == 0:
            dimensions = replace(dimensions, inputs=dimensions.inputs // self.size * size)
        return replace(convolution, size=dimensions)


IPUS = (2, 4, 8, 16)
"""Numbers of IPUs tried for pipelines."""
HALF_PRECISION = "half precision (mixed_float16)"
SCALED_TAKE, STAGES_TAKE = 1.2, 1.25
"""Bytes to allow for each estimated one of a scaled program, and of a stage of a pipeline.

These are the most that programs took in which proposals for dense, convolutional and recurrent models and transformers
were carried out.
"""
RECOMPUTATION = "recomputation of activations (IPUConfig.allow_recompute)"


class ChangeEstimator:
    """Estimates changes of one program; `found` is its cost report.

    `recomputing` compiles the program with recomputation of activations; None where it cannot be compiled again.
    """

    def __init__(self, program: Program, found: Estimate, recomputing: Callable[[], Program] | None = None) -> None:
        self.program, self.found, self.recomputing = program, found, recomputing
        self.capacity, self.peak = found.target.bytes_per_tile, found.memory.peak_fullest
        self.batch = Batches(program, found).size
        summed = any(tensor.name.startswith(ACCUMULATOR) for tensor in found.liveness)
        self.accumulates = bool(backward_begin(program)) and not summed and bool(self._accumulators(found))
        self._estimates = {found.assumptions: found}
        self.peak_of = cache(self._peak_of)
        """The bytes on the fullest tile of all IPUs with a change."""
        self._scaled: dict[tuple[Assumptions, int, bool], list[LiveRange]] = {}
        self._recomputed: dict[Change, list[LiveRange]] = {}

    def alone(self) -> list[Lever]:
        """The changes that apply to the program, each by itself."""
        smaller = self.smaller_batch(Change())
        changes: list[Change | None] = [smaller]
        of_replica = self.smaller_batch(Change(replicas=2)) if backward_begin(self.program) else None
        if of_replica is not None and self.batch // of_replica.batch <= IPUS[-1]:
            changes.append(replace(of_replica, replicas=self.batch // of_replica.batch))
        if self.accumulates:
            changes.append(self.smaller_batch(Change(accumulates=True)))
        changes += [
            Change(half_precision=True),
            *(Change(assumptions=each) for each in self.options()),
            self._recomputation(),
            self.pipeline(),
        ]
        return [self.lever(change) for change in changes if change is not None]

    def lever(self, change: Change, *, alone: bool = True) -> Lever:
        """A change with the bytes that it saves."""
        how = lines(change, self.batch, self.found.assumptions)
        return Lever(self.words(change), self.peak - self.peak_of(change), self.fits(change), alone, how)

    def fits(self, change: Change) -> bool:
        """Whether the program would fit with a change, although its estimate may be too low."""
        scaled = change.batch or change.half_precision or self._offloads(change)
        takes = STAGES_TAKE if change.ipus > 1 else SCALED_TAKE if scaled else 1
        return self.peak_of(change) * takes <= self.capacity

    def smaller_batch(self, change: Change) -> Change | None:
        """Halve the batch until the program fits, at least to 1; None for a program whose batch is below 2."""
        sizes = [self.batch >> halvings for halvings in range(1, self.batch.bit_length())]
        if not sizes:
            return None
        fitting = bisect_left(sizes, True, key=lambda size: self.fits(replace(change, batch=size)))
        return replace(change, batch=sizes[min(fitting, len(sizes) - 1)])

    def options(self) -> list[Assumptions]:
        """Half the memory for products and offloaded optimizer state, as far as the program has them."""
        assumptions, found = self.found.assumptions, []
        if any(compute_set.work_estimate.multiply_adds for compute_set in self.program.compute_sets):
            found.append(halved(assumptions))
        if OPTIMIZER_STATE_VARIABLES not in assumptions.offloaded:
            found.append(offloading(assumptions))
        return found

    def _recomputation(self) -> Change | None:
        if self.recomputing is None or not backward_begin(self.program) or recomputes(self.program):
            return None
        return Change(recomputes=True)

    def pipeline(self, change: Change | None = None) -> Change | None:
        """The pipeline over the fewest IPUs that suffice, at most one per layer, or else the one that saves most."""
        tried = []
        for ipus in IPUS:
            if ipus > most_stages(self.program):
                break
            tried.append(replace(change or Change(), ipus=ipus))
            if self.fits(tried[-1]):
                return tried[-1]
        return min(tried, key=self.peak_of, default=None)

    def words(self, change: Change) -> str:
        """The description of a change."""
        before, found = self.found.assumptions, []
        if change.batch:
            accumulating = f"the same update by gradient accumulation over micro-batches of {change.batch}"
            smaller = f"a smaller batch, {change.batch} in place of {self.batch}"
            replicated = f"the same update by {change.replicas} replicas with batches of {change.batch}"
            found.append(accumulating if change.accumulates else replicated if change.replicas > 1 else smaller)
        if change.half_precision:
            found.append(HALF_PRECISION)
        if change.assumptions is not None:
            now, then = before.available_memory_proportion, change.assumptions.available_memory_proportion
            found += [f"availableMemoryProportion {then:g} in place of {now:g}"] if then != now else []
            offloads = change.assumptions.offloaded - before.offloaded
            found += ["optimizer state in streaming memory"] if offloads else []
        found += [RECOMPUTATION] if change.recomputes else []
        if change.ipus > 1:
            found.append(f"pipelining over {change.ipus} IPUs")
        return " + ".join(found)

    def _peak_of(self, change: Change) -> int:
        if change.recomputes:
            return self._peak_recomputing()
        compute_sets = len(self.program.compute_sets)
        found = self._estimate(change.assumptions)
        blocks = list(found.tiles.blocks)
        if change.batch or change.half_precision:
            blocks = self._scaled_blocks(found, change)
        if change.ipus > 1:
            changed = replace(found, tiles=replace(found.tiles, blocks=tuple(blocks)))
            splits = split(
                self.program, changed, change.ipus, self._with_recomputation(replace(change, ipus=1), changed)
            )
            return max(_peak(blocks, fixed, compute_sets) for blocks, fixed in splits)
        if ((change.accumulates or change.replicas > 1) and change.batch) or self._offloads(change):
            blocks = [*blocks, *self._accumulators(found)]
        if blocks == list(found.tiles.blocks):
            return found.memory.peak_fullest
        return _peak(blocks, found.tiles.fixed, compute_sets)

    def _offloads(self, change: Change) -> bool:
        """Whether a change offloads optimizer state, for which the program must accumulate gradients."""
        new = change.assumptions is not None and bool(change.assumptions.offloaded - self.found.assumptions.offloaded)
        return new and self.accumulates

    def _peak_recomputing(self) -> int:
        """The bytes of the program as it is compiled with recomputation, which shallow models do not gain from."""
        assert self.recomputing is not None
        again = self.recomputing()
        if not recomputes(again):
            return self.peak
        return measured(again, self.found.target, self.found.assumptions).memory.memory.peak_fullest

    def _with_recomputation(self, change: Change, changed: Estimate) -> list[LiveRange]:
        """The live ranges with recomputation of the changed program, cached for several numbers of IPUs."""
        if change not in self._recomputed:
            self._recomputed[change] = recomputed(self.program, changed.tiles)
        return self._recomputed[change]

    def _scaled_blocks(self, found: Estimate, change: Change) -> list[LiveRange]:
        """The live ranges with a smaller batch, or in half precision, which adds casts of the weights.

        They are cached: planning products is slow, and several changes share them.
        """
        key = found.assumptions, change.batch, change.half_precision
        if key not in self._scaled:
            blocks = Batches(self.program, found).scaled(change.batch, change.half_precision)
            casts = self._accumulators(found) if change.half_precision else []
            self._scaled[key] = [*blocks, *(replace(each, placement=each.placement.scaled(0.5)) for each in casts)]
        return self._scaled[key]

    def _estimate(self, assumptions: Assumptions | None) -> Estimate:
        """The cost report with the memory that other options need; its cycles are those of the present options."""
        wanted = assumptions or self.found.assumptions
        if wanted not in self._estimates:
            held = measured(self.program, self.found.target, wanted).memory
            self._estimates[wanted] = replace(
                self.found, assumptions=wanted, memory=held.memory, tiles=held.tiles, liveness=held.liveness
            )
        return self._estimates[wanted]

    def _accumulators(self, found: Estimate) -> list[LiveRange]:
        """The sums of gradients over micro-batches, mapped to tiles like the variables."""
        updated = {s.buffer for c in self.program.compute_sets for s in c.writes if s.buffer.kind == "variable"}
        shapes = {buffer.shape for buffer in updated}
        weights = [(block, block.buffer) for block in found.tiles.blocks if block.category == WEIGHTS]
        return [block for block, buffer in weights if buffer is not None and buffer.shape in shapes]


def _peak(blocks: Sequence[LiveRange], fixed: Mapping[str, np.ndarray], compute_sets: int) -> int:
    return int(follow(blocks, fixed, compute_sets)[1].max())


def offloading(assumptions: Assumptions) -> Assumptions:
    """Assumptions with the optimizer's state in streaming memory."""
    return replace(assumptions, offloaded=assumptions.offloaded | {OPTIMIZER_STATE_VARIABLES})


def halved(assumptions: Assumptions) -> Assumptions:
    """Assumptions with half the memory for the plans of products and slices."""
    of_convolutions, of_slices = assumptions.convolution_memory_proportion, assumptions.slice_memory_proportion
    layers = tuple((n, replace(o, memory_proportion=o.memory_proportion / 2)) for n, o in assumptions.layers)
    return replace(
        assumptions,
        available_memory_proportion=assumptions.available_memory_proportion / 2,
        convolution_memory_proportion=None if of_convolutions is None else of_convolutions / 2,
        slice_memory_proportion=None if of_slices is None else of_slices / 2,
        layers=layers,
    )
