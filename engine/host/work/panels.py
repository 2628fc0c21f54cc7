"""Work that packs a product's right operand as panels."""

from __future__ import annotations

from dataclasses import dataclass

from engine.codelets.language.record import block
from engine.codelets.products.contract_fields import right_operand_record
from engine.codelets.products.micro_kernel import panel_columns
from engine.host.encoded import Encoded, HostWork
from engine.program.buffer import Address
from engine.program.work.offsets import Offsets


@dataclass(frozen=True, slots=True)
class PanelPacking(HostWork):
    """Packs B[k_b[k] + n * stride_b], n below `columns`, a multiple of a panel's, as float32 [panel, k, column]."""

    b: Address
    panels: Address
    k_b: Offsets
    columns: int
    stride_b: int

    @property
    def unit_count(self) -> int:
        return self.columns // panel_columns()

    def encode(self) -> Encoded:
        """The fields of the contraction's B, and the address of the panels."""
        from engine.codelets.products.contract_f32 import contract_scratch
        from engine.codelets.products.pack_panels import Panels, pack_panels

        contraction = right_operand_record(self.b, self.k_b.table, self.columns, self.stride_b)
        parameters = Panels(**vars(contraction), panels=self.panels)
        return Encoded.of(pack_panels, block(parameters), contract_scratch())
