"""Packs a right operand as panels, one after the other, for contractions all of whose units share the panels."""

from __future__ import annotations

from engine.codelets.host.rows import word
from engine.codelets.language.build import codelet
from engine.codelets.language.record import Address
from engine.codelets.products.contract import Operands
from engine.codelets.products.contract_f32 import COLUMN, pack_panel
from engine.codelets.products.contract_fields import Field
from engine.codelets.products.pack import PANEL
from engine.machine_code.abi import RESERVED_SCRATCH


class Panels(Field):
    """A contraction's fields, of which the codelet uses those of B, columns and k, and the address of the panels."""

    panels: Address


@codelet
def pack_panels(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Packs panels lo <= n < hi, float32 [panel, k, column]. The columns are a multiple of a panel's."""
    free, k = scratch + RESERVED_SCRATCH, word(parameters, Panels.K)
    at = Operands(parameters, 0, word(parameters, Panels.B), 0, free)
    for n in range(lo, hi):
        target = word(parameters, Panels.PANELS) + 4 * PANEL * k * n
        pack_panel(at, PANEL * n, PANEL, 0, k, target, free + COLUMN)
