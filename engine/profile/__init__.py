"""What the chip would do with a program: memory, cycles, and how far to trust them."""

from engine.profile.account import Account, ComputeSetCost, account, check_fit
from engine.profile.memory import Memory, Tensor
from engine.profile.names import readable_name
from engine.profile.summary import summary

__all__ = [
    "Account",
    "ComputeSetCost",
    "Memory",
    "Tensor",
    "account",
    "check_fit",
    "readable_name",
    "summary",
]
