"""Packs a right operand as panels, one after the other, for contractions all of whose units share the panels."""

from __future__ import annotations

from dataclasses import dataclass

from engine.codelets.language.build import codelet
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.record import Address, block, word
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_f32 import COLUMN, CONTRACT_SCRATCH, pack_panel
from engine.codelets.products.contract_fields import Panels, right_operand
from engine.codelets.products.micro_kernel import panel_columns
from engine.codelets.products.pack import PANEL
from engine.codelets.products.pack_bf16x3 import GROUP
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.offsets import Offsets


@codelet
def pack_panels(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Packs panels lo <= n < hi, float32 [panel, k, column]. The columns are a multiple of a panel's."""
    free, k = scratch + RESERVED_SCRATCH, word(parameters, Panels.K)
    at = Operands(parameters, 0, word(parameters, Panels.B), 0, free)
    for n in range(lo, hi):
        target = word(parameters, Panels.PANELS) + 4 * PANEL * k * n
        pack_panel(at, PANEL * n, PANEL, 0, k, target, free + COLUMN)


@dataclass(frozen=True, slots=True)
class PanelPacking(HostWork):
    """Packs B[k_b[k] + n * stride_b], n below `columns`, a multiple of a panel's, as float32 [panel, k, column].

    With `bf16x3` it packs any number of columns in groups of bfloat16 parts.
    """

    b: Address
    panels: Address
    k_b: Offsets
    columns: int
    stride_b: int
    bf16x3: bool = False

    @property
    def unit_count(self) -> int:
        return -(-self.columns // (GROUP if self.bf16x3 else panel_columns()))

    def encode(self) -> Encoded:
        """The fields of B, and the address of the panels."""
        right = right_operand(self.b, self.k_b, self.columns, self.stride_b)
        parameters = block(Panels(**vars(right), panels=self.panels))
        if self.bf16x3:
            from engine.codelets.products.contract_bf16x3 import BF16X3_SCRATCH
            from engine.codelets.products.pack_parts import pack_parts

            return Encoded.of(pack_parts, parameters, BF16X3_SCRATCH)
        return Encoded.of(pack_panels, parameters, CONTRACT_SCRATCH)
