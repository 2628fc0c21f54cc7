"""Assumptions of a cost report: the library options that trade memory for cycles, I/O tiles, offloading, merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from engine.errors import ConfigurationError
from engine.frozen import frozen
from engine.ir.op_names import layer_of
from engine.partition.stage_options import LibraryOptions
from engine.target import Target

PARTIALS = {"float": "f32", "f32": "f32", "half": "f16", "f16": "f16"}
MOST_IO_TILES = 192
"""C: GetNumIoTiles in poplar_compiler.cc of Graphcore's TensorFlow."""
SelectionOrder = Literal["AUTO", "ZIGZAG", "SNAKE", "HOOF"]


@frozen
class EstimatedOptimizations:
    """Options of `IPUConfig.optimizations` and `IPUConfig.selection_order` (Python API, 18.7), for cost reports.

    Args:
        minimum_remote_bytes: arrays of fewer bytes stay on the tiles when the rest is offloaded.
        merge_infeeds: whether all arrays of an infeed's element share one sync, instead of one for each.
        combine_lookups: whether independent look-ups in one table are planned as one.
        combine_products: whether independent products that share an operand are planned as one.
        replace_dynamic_slices: whether dynamic slices and their updates along one dimension are planned as look-ups of
            rows, which leave the array in place, if that takes fewer cycles than rearranging the whole array.
        reduce_many_bytes: most bytes that a group of independent reductions reads; the group shares its syncs and the
            start-up of its exchanges. 0: no groups.
        cross_replica_sum_bytes: most bytes of gradients that are summed over replicas at once. 0: each by itself.
        syncless_collectives: whether sums over replicas have a sync only at their beginning.
        inter_ipu_copies_bytes: most bytes that come from other IPUs in one copy. 0: one copy for each array.
        selection_order: the order in which shards of a replica are on the IPUs of the ladder.
    """

    minimum_remote_bytes: int = 128
    merge_infeeds: bool = False
    combine_lookups: bool = False
    combine_products: bool = False
    replace_dynamic_slices: bool = True
    reduce_many_bytes: int = 0
    cross_replica_sum_bytes: int = 0
    syncless_collectives: bool = False
    inter_ipu_copies_bytes: int = 0
    selection_order: SelectionOrder = "AUTO"

    @property
    def merges(self) -> bool:
        """Whether an option merges compute sets."""
        return self.merge_infeeds or self.combine_lookups or self.combine_products or self.reduce_many_bytes > 0


NO_OPTIMIZATIONS = EstimatedOptimizations()
OPTIMIZER_STATE_VARIABLES, GRADIENT_ACCUMULATORS = "optimizer state variables", "gradient accumulators"
"""Kinds of arrays that can be offloaded (offload_weight_update_variables, offload_gradient_accumulation_buffers)."""


@frozen
class ProductOptions:
    """Options of a matrix product or a convolution.

    They are the type of partial sums, "f32" or "f16", and the fraction of tile memory for temporary bytes of the plan.
    """

    partials_type: str = "f32"
    memory_proportion: float = 0.6


@frozen
class Assumptions:
    """Assumptions of a cost report.

    Args:
        partials_type: type of partial sums of fp16 products, "f32" (Poplar's default) or "f16".
        available_memory_proportion: fraction of tile memory for temporary bytes of a plan, above 0; 0.6 by default.
        convolution_partials_type: type of partial sums of convolutions; None for `partials_type`.
        convolution_memory_proportion: fraction for convolutions; None for `available_memory_proportion`.
        slice_memory_proportion: fraction for embedding look-ups; None for `available_memory_proportion`.
        layers: (layer, options) for products and convolutions of a layer, which override all above. The layer has its
            name in the cost report. A name that ends in "/" matches every op_name that contains it.
        triangular_solve_block, cholesky_block: sizes of the blocks, each processed on one tile; None for the cheapest.
        io_tiles: number of tiles that hold stream buffers and do not compute; even, at most 192.
        io_tile_memory_proportion: fraction of an I/O tile's memory that may hold stream data; 0.9 by default.
        overlapped_io: whether transfers from and to the host are concurrent with compute (place_ops_on_io_tiles).
        stack_bytes: bytes of the supervisor's stack and of each worker's; None for the estimate in data/memory.toml.
        code_bytes: whether estimates of code and vertex state count as memory.
        offloaded: kinds of arrays in streaming memory, which are on the tiles only while used:
            OPTIMIZER_STATE_VARIABLES, GRADIENT_ACCUMULATORS.
        state_shards: number of replicas among which offloaded optimizer state is distributed.
        state_interval: number of iterations, of the loop around an optimizer, for each of its updates.
        optimizations: what the compiler merges, and the IPUs of shards.
        rearranged_on_host: whether variables come from the host in the order that their products read.

    Raises:
        ConfigurationError: a proportion that is not above 0, an unknown type, or an invalid number of I/O tiles.
    """

    partials_type: str = "f32"
    available_memory_proportion: float = 0.6
    convolution_partials_type: str | None = None
    convolution_memory_proportion: float | None = None
    slice_memory_proportion: float | None = None
    layers: tuple[tuple[str, ProductOptions], ...] = ()
    triangular_solve_block: int | None = None
    cholesky_block: int | None = None
    io_tiles: int = 0
    io_tile_memory_proportion: float = 0.9
    overlapped_io: bool = False
    stack_bytes: tuple[int | None, int | None] = (None, None)
    code_bytes: bool = True
    offloaded: frozenset[str] = frozenset()
    state_shards: int = 1
    state_interval: int = 1
    optimizations: EstimatedOptimizations = NO_OPTIMIZATIONS
    rearranged_on_host: bool = False

    def __post_init__(self) -> None:
        given = (self.available_memory_proportion, self.convolution_memory_proportion, self.slice_memory_proportion)
        for proportion in (*given, *(options.memory_proportion for _, options in self.layers)):
            _check_proportion(proportion)
        for kind in (self.partials_type, self.convolution_partials_type, *(o.partials_type for _, o in self.layers)):
            if kind not in (None, "f32", "f16"):
                raise ConfigurationError(f"Expected partials of type 'f32' or 'f16'. Received: {kind!r}. Use 'f32'.")
        if not 0 <= self.io_tiles <= MOST_IO_TILES or self.io_tiles % 2:
            nearest = min(MOST_IO_TILES, max(0, self.io_tiles + self.io_tiles % 2))
            raise ConfigurationError(
                f"Expected an even number of I/O tiles, at most {MOST_IO_TILES}. Received: {self.io_tiles}. "
                f"Use {nearest}."
            )

    def product_options(self, op_name: str = "", convolution: bool = False) -> ProductOptions:
        """The options of a product or a convolution with this op_name."""
        for name, options in self.layers:
            if f"/{name}/" in f"/{layer_of(op_name)}/" or (name.endswith("/") and name in op_name):
                return options
        partials, proportion = self.partials_type, self.available_memory_proportion
        if convolution:
            partials = self.convolution_partials_type or partials
            if self.convolution_memory_proportion is not None:
                proportion = self.convolution_memory_proportion
        return ProductOptions(partials, proportion)

    def slice_proportion(self) -> float:
        """The fraction of tile memory for look-ups."""
        given = self.slice_memory_proportion
        return self.available_memory_proportion if given is None else given

    def compute_target(self, target: Target) -> Target:
        """The target with only the tiles that compute. Raises ConfigurationError if none would be left."""
        if not self.io_tiles:
            return target
        if self.io_tiles >= target.tiles:
            raise ConfigurationError(
                f"Expected fewer I/O tiles than the {target.tiles} tiles of {target.name}. Received: {self.io_tiles}. "
                f"Use {max(0, target.tiles // 8 // 2 * 2)}."
            )
        return replace(target, tiles=target.tiles - self.io_tiles)

    @classmethod
    def from_options(
        cls, matmul: Mapping[str, Any], convolution: Mapping[str, Any], slices: Mapping[str, Any], **rest: Any
    ) -> Assumptions:
        """Assumptions from flags of Poplar's libraries: partialsType and availableMemoryProportion, maybe as text.

        Missing flags keep their defaults; `rest` are further fields. Raises ConfigurationError for an invalid value.
        """
        return _with_flags(cls(**rest), matmul, convolution, slices)


def with_flags(flags: Mapping[str, Any], default: ProductOptions) -> ProductOptions:
    """Options from flags of Poplar's libraries; missing flags take those of `default`. Raises ConfigurationError."""
    proportion = _proportion(flags, default.memory_proportion)
    return ProductOptions(_partials(flags) or default.partials_type, proportion)


def with_library_options(assumptions: Assumptions, options: LibraryOptions) -> Assumptions:
    """The assumptions, overridden by the flags of one part of a pipeline. Raises ConfigurationError."""
    return _with_flags(assumptions, dict(options.matmul), dict(options.convolution), dict(options.slices))


def _with_flags(
    assumptions: Assumptions, matmul: Mapping[str, Any], convolution: Mapping[str, Any], slices: Mapping[str, Any]
) -> Assumptions:
    """The assumptions with flags; convolutions have options of their own, not those of matmul."""
    products = with_flags(matmul, assumptions.product_options())
    convolutions = with_flags(convolution, assumptions.product_options(convolution=True))
    return replace(
        assumptions,
        partials_type=products.partials_type,
        available_memory_proportion=products.memory_proportion,
        convolution_partials_type=convolutions.partials_type,
        convolution_memory_proportion=convolutions.memory_proportion,
        slice_memory_proportion=_proportion(slices, assumptions.slice_proportion()),
    )


def _partials(flags: Mapping[str, Any]) -> str | None:
    given = flags.get("partialsType")
    if given is None:
        return None
    if str(given) not in PARTIALS:
        raise ConfigurationError(f"Expected partialsType 'float' or 'half'. Received: {given!r}. Use 'float'.")
    return PARTIALS[str(given)]


def _proportion(flags: Mapping[str, Any], default: float) -> float:
    given = flags.get("availableMemoryProportion", default)
    try:
        found = float(given)
    except (TypeError, ValueError):
        raise _no_proportion(given) from None
    _check_proportion(found)
    return found


def _check_proportion(proportion: float | None) -> None:
    if proportion is not None and not proportion > 0:
        raise _no_proportion(proportion)


def _no_proportion(given: Any) -> ConfigurationError:
    return ConfigurationError(
        f"Expected an availableMemoryProportion above 0 and mostly up to 1. Received: {given!r}. 0.6 is the default."
    )


DEFAULT_OPTIONS = ProductOptions()
DEFAULT_ASSUMPTIONS = Assumptions()
