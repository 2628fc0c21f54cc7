"""Runs programs on tiles with separate memories, and reports accesses that compute sets do not declare."""

from engine.debug.executable import DebugExecutable, debug_executable
from engine.debug.record import Record, Superstep
from engine.debug.running_modules import DebugRun, debug_run
from engine.debug.session import Session, debugging

__all__ = [
    "DebugExecutable",
    "DebugRun",
    "Record",
    "Session",
    "Superstep",
    "debug_executable",
    "debug_run",
    "debugging",
]
