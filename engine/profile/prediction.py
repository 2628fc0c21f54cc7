"""Error bounds of a prediction, from the chip model's errors against published figures that were held out.

A step belongs to regimes: kinds of programs with published figures. The error of a regime is the root mean square over
its held-out rows (engine.profile.validation); a step's error weights regimes by their shares of its cycles. The error
of a part is the worst of the held-out rows of that kind of work. Work without a held-out row counts with UNMEASURED,
and is named.
"""

from __future__ import annotations

from engine.frozen import frozen
from engine.ir.op_names import in_gradient_scope
from engine.profile.step_costs import ComputeSetCost, StepCosts
from engine.profile.validation import DENSE, FEW_COLUMNS, STEPS, Bound, bounds, measurements

PARTS = ("compute", "exchange", "sync", "host")
UNMEASURED = 0.5
"""Relative error assumed for work without a published figure that is held out, such as sorts and look-ups."""
ELEMENT_WISE = ("compiled element-wise", "hand-made element-wise")
HALF_TYPES = ("vector widths",)
BLOCKS = ("linear algebra",)
OF_ONE_IPU = {"exchange": ("exchange",), "sync": ("sync",), "host": ("host",)}
OF_SEVERAL = {"exchange": ("programs on several IPUs", "scaling over IPUs"), "sync": ("sync between IPUs",)}
SMALL_STEP = 2500
"""Mean cycles of a superstep up to which the cost of supersteps dominates a program."""
LOOKUPS = "look-ups and updates of rows"
SHOWN = 0.4
"""Error of a row above which reports of its regime explain it."""


@frozen
class Trust:
    """A regime, its share of a step's cycles or bytes, and its bound, or None if no published figure is held out."""

    regime: str
    share: float
    bound: Bound | None

    @property
    def error(self) -> float:
        """The root mean square of the regime's rows, or UNMEASURED."""
        return UNMEASURED if self.bound is None else self.bound.rms

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.regime}, {self.share:.0%}: no figure held out, ± {UNMEASURED:.0%} assumed"
        return str(self.bound)

    @property
    def reason(self) -> str:
        """The reasons for errors above SHOWN of the regime's rows, including rows used in making the model.

        A group that begins with the regime's name has rows of the regime that do not count in its bound.
        """
        rows = [each for each in measurements() if each.group.startswith(self.regime) and abs(each.error) > SHOWN]
        return "; ".join(f"{each.error:+.0%} {each.name}: {each.caveat}" for each in rows)


def prediction_error(estimate: StepCosts) -> dict[str, float]:
    """Relative errors (0.2 for 20 %) of a step's "compute", "exchange", "sync", "host" and "total"."""
    several = estimate.replicas > 1 or estimate.pipeline is not None
    whole = sum(cost.compute for cost in estimate.costs)
    found = {"compute": sum(cost.compute * _error_of(cost) for cost in estimate.costs) / max(1, whole)}
    for part, groups in OF_ONE_IPU.items():
        found[part] = _worst(groups + (OF_SEVERAL.get(part, ()) if several else ()))
    host = estimate.exposed_host / max(1, estimate.cycles_per_step)
    on_chip = sum(each.share * each.error for each in trust_in_cycles(estimate))
    return {**found, "total": (1 - host) * on_chip + host * found["host"]}


def cycles_of_parts(estimate: StepCosts) -> dict[str, int]:
    """The cycles of a step's "compute", "exchange", "sync" and "host", which add up to the step."""
    return {part: estimate.exposed_host if part == "host" else getattr(estimate, part) for part in PARTS}


def trust_in_cycles(estimate: StepCosts) -> tuple[Trust, ...]:
    """The regimes of a step's cycles on the chip, the largest share first. The shares add up to 1."""
    costs = estimate.costs if estimate.pipeline is None else estimate.pipeline.costs
    whole = sum(cost.cycles for cost in costs)
    if not whole:
        return ()
    if whole / sum(cost.runs for cost in costs) <= SMALL_STEP:
        return (_trust(STEPS, 1.0),)
    regime = _regime_of_products(costs)
    shares: dict[str, float] = {}
    for cost in costs:
        named = _unlike(cost) or regime
        shares[named] = shares.get(named, 0.0) + cost.cycles / whole
    return tuple(sorted((_trust(name, share) for name, share in shares.items()), key=lambda each: -each.share))


def trust_in_bytes(estimate: StepCosts) -> Trust:
    """The regime of a step's bytes."""
    held = estimate.memory.always_live
    small = sum(held.get(name, 0) for name in ("code", "vertex state"))
    convolved = sum(cost.cycles for cost in estimate.costs if cost.operation.convolves)
    if convolved > estimate.cycles / 4:
        return _trust("bytes of convolutions", 1.0)
    peak = estimate.memory.peak_mean * estimate.target.tiles
    return _trust("bytes of many small arrays" if small > peak / 4 else "bytes of large arrays", 1.0)


def error_basis(trusts: tuple[Trust, ...]) -> str:
    """Describe the basis of an error: the regimes, the evidence for each, and why a row is far off."""
    shown = [str(each) for each in trusts if each.share >= 0.05 or each is trusts[0]]
    return "; ".join([*shown, *(each.reason for each in trusts if each.reason)])


def _regime_of_products(costs: tuple[ComputeSetCost, ...]) -> str:
    """The regime of a program's products and element-wise compute sets."""
    products = [cost for cost in costs if cost.operation.unit == "AMP"]
    convolved = sum(cost.cycles for cost in products if cost.operation.convolves)
    multiplied = sum(cost.cycles for cost in products) - convolved
    if 4 * (convolved + multiplied) < sum(cost.cycles for cost in costs):
        return ELEMENT_WISE[0]
    if convolved >= multiplied:
        return "convolutional networks"
    batched = [cost.operation for cost in products if cost.operation.batches > 1]
    if batched:
        # Heads of attention are batched products, of few columns where sequences are short, as in windows.
        if all(operation.columns < FEW_COLUMNS for operation in batched):
            return f"batched products below {FEW_COLUMNS} columns"
        trains = any(in_gradient_scope(cost.op_name) for cost in costs)
        return "transformers in training" if trains else "transformers in inference"
    wide = sum(cost.cycles for cost in products if cost.operation.columns >= FEW_COLUMNS)
    return DENSE[2 * wide >= multiplied]


def _unlike(cost: ComputeSetCost) -> str:
    """The regime of a compute set that is not of its program's regime; "" for all others."""
    return cost.operation.unmeasured or {"blocks": BLOCKS[0], "slices": LOOKUPS}.get(cost.method, "")


def _trust(regime: str, share: float) -> Trust:
    return Trust(regime, share, bounds().get(regime))


def _error_of(cost: ComputeSetCost) -> float:
    unlike = _unlike(cost)
    if unlike:
        return _worst((unlike,))
    if cost.operation.unit == "AMP":
        return _worst((DENSE[cost.operation.columns >= FEW_COLUMNS],))
    return _worst(ELEMENT_WISE + (HALF_TYPES if cost.operation.element_type in ("f16", "bf16") else ()))


def _worst(groups: tuple[str, ...]) -> float:
    found = [abs(bounds()[group].worst) for group in groups if group in bounds()]
    return max(found, default=UNMEASURED)
