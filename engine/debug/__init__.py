"""Runs programs on tiles with separate memories, and reports accesses that compute sets do not declare."""

from engine.debug.debug_run import DebugRun, debug_run
from engine.debug.executable import DebugExecutable
from engine.debug.record import DebugRecord, Superstep
from engine.debug.session import Session, debugging

__all__ = [
    "DebugExecutable",
    "DebugRun",
    "DebugRecord",
    "Session",
    "Superstep",
    "debug_run",
    "debugging",
]
