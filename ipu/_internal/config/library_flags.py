"""The option flags of Poplar and its libraries: the known ones, with their effects here, and the check for others.

Poplar refuses an unknown flag with "Unrecognised option", and so does this module. The Python API names few flags
and refers to Poplar's own reference for the rest; the flags that programs of that time set are listed here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import ConfigurationError
from ipu._internal.config.metadata import LOGGER

NEAR = 0.84
"""Least similarity (difflib's ratio) at which a flag is taken for a misspelling of a known one."""


@dataclass(frozen=True)
class LibraryFlags:
    """The flags of one dictionary: those with an effect here, those without one, and the prefixes of families.

    A flag of a family that is not listed is accepted with a warning, unless it is a misspelling of a listed one:
    Poplar's engine options differ from release to release.
    """

    title: str
    acting: Mapping[str, str] = field(default_factory=dict)
    inert: tuple[str, ...] = ()
    families: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """All listed flags, in alphabetical order."""
        return tuple(sorted((*self.acting, *self.inert), key=str.lower))


PROPORTION = "cost report: the part of tile memory for a plan's temporary bytes; above 0"
PARTIALS = "cost report: 'half' runs fp16 products at twice the rate; 'float' is the default"
SUPERVISOR, WORKER = (
    "cost report: bytes of the supervisor's stack on each tile",
    "cost report: bytes of a worker's stack",
)
PLANNING = tuple(
    "enableFastReduce enableMultiStageReduce planConstraints planConstraintsOutputFilename remapOutputTensor "
    "use128BitConvUnitLoad enableConvDithering gatherConvOutput startTileMultiplier".split()
)

MATMUL = LibraryFlags(
    "matrix multiplications",
    {"availableMemoryProportion": PROPORTION, "partialsType": PARTIALS},
    (*PLANNING, *"enableSerialisation fullyConnectedPass gatherOutput inputRHSIsPreArranged outputType".split()),
)
CONVOLUTION = LibraryFlags(
    "convolutions",
    {"availableMemoryProportion": PROPORTION, "partialsType": PARTIALS},
    (
        *PLANNING,
        *"disableTransformations enableSingleInputReduce insertTransformsCycleCountProgs interIpuPartialsType".split(),
        *"interTilePartialsType maxOutputMemoryProportion numIOTiles partialsType.interIPU".split(),
        *"partialsType.interTile pass tempMemoryBudget tilesPerIPU useAggressiveRegrouping useWinograd".split(),
        *"weightUpdateMethod winogradPatchSize cycleBackoffPercent".split(),
    ),
)
SLICE = LibraryFlags(
    "slices and embedding look-ups",
    {"availableMemoryProportion": PROPORTION},
    tuple(
        "indicesAreSorted indicesDistribution operationForUpdate partialType planConstraints planMinimisationTarget "
        "usedForSlice usedForUpdate validateIndices".split()
    ),
)
POOLING = LibraryFlags("poolings", {}, ("optimizeForSpeed", "poolUseIntrospectiveMapping"))
GCL = LibraryFlags(
    "collectives",
    {"useSynclessCollectives": "cost report: 'true' leaves sums over replicas one sync each"},
    tuple(
        "link-topology maxBroadcastSize maxBytesPerTile method shuffle syncful.maxBroadcastSize syncful.method "
        "syncful.useForwardingToSupportStridedCopies syncful.useOptimisedLayout topology "
        "useReplicatedImplementation".split()
    ),
)
REPORT = LibraryFlags(
    "reports",
    {},
    tuple(
        "colours executionOptions graphOptions showExecutionSteps showOptimizations showPerIpuMemoryUsage "
        "showVarStorage".split()
    ),
)
ENGINE = LibraryFlags(
    "the engine",
    {
        "debug.allowOutOfMemory": "host: what does not fit a chip runs here, with a warning (docs/chip_memory.md)",
        "target.supervisorStackSizeInBytes": SUPERVISOR,
        "target.workerStackSizeInBytes": WORKER,
        "debug.supervisorStackSizeInBytes": SUPERVISOR,
        "debug.workerStackSizeInBytes": WORKER,
    },
    tuple(
        "autoReport.all autoReport.directory autoReport.executionProfileProgramRunCount autoReport.outputArchive "
        "autoReport.outputDebugInfo autoReport.outputExecutionProfile autoReport.outputGraphProfile "
        "autoReport.outputLoweredVars autoReport.outputSerializedGraph autoReport.streamAtEachRun "
        "debug.branchRecordTile debug.computeInstrumentationLevel debug.cpuMultiThreadExecution "
        "debug.executionProfileProgramRunCount debug.exchangeDiagnostics debug.externalExchangeInstrumentationLevel "
        "debug.floatPointOpException debug.instrument debug.instrumentCompute debug.instrumentControlFlow "
        "debug.instrumentExternalExchange debug.loweredVarDumpFile debug.nanOverflowException debug.outputAllSymbols "
        "debug.profilingTile debug.retainDebugInformation debug.runtimeVerify "
        "debug.trace debug.traceFile debug.verify exchange.enablePrefetch "
        "exchange.streamBufferOverlap opt.enableInlining opt.enableMultiAccessCopies "
        "opt.internalExchangeOptimisationTarget opt.maxCompilationThreads opt.maxCopyMergeSize opt.maxLinkerThreads "
        "opt.useAutoloader prng.enable prng.seed profiler.format profiler.includeCycleEstimates "
        "profiler.includeFlopEstimates profiler.replicaToProfile streamCallbacks.multiThreadMode "
        "streamCallbacks.numWorkerThreads target.deterministicWorkers target.extendedMemory target.gatewayMode "
        "target.hostSyncTimeout target.maxStreamCallbackThreadsPerNumaNode target.saveArchive "
        "target.syncPollPeriodUs target.syncReplicasIndependently "
        "target.useBufferedCompletions ".split()
    ),
    ("autoReport.", "debug.", "exchange.", "opt.", "prng.", "profiler.", "streamCallbacks.", "target."),
)

LIBRARIES: dict[str, LibraryFlags] = {
    "compilation_poplar_options": ENGINE,
    "convolutions.poplar_options": CONVOLUTION,
    "gcl_poplar_options": GCL,
    "matmuls.poplar_options": MATMUL,
    "pooling.poplar_options": POOLING,
    "slices.poplar_options": SLICE,
}
"""Keyed by the attribute of IPUConfig that takes the flags."""
REPORTS: dict[str, LibraryFlags] = {"profiling.graph_options": REPORT, "profiling.execution_options": REPORT}
"""Keyed by the attribute of the options of older programs."""

_warned: set[str] = set()


def check_flags(name: str, flags: Mapping[Any, Any], library: LibraryFlags) -> None:
    """Raises ConfigurationError, a ValueError, for a flag that a library lacks; `name` is the dictionary's."""
    for flag in flags:
        if flag not in library.known:
            _unlisted(name, flag, library)


def _unlisted(name: str, flag: str, library: LibraryFlags) -> None:
    """Warns of a flag of a known family; raises for all others."""
    nearest = difflib.get_close_matches(str(flag), library.known, n=1, cutoff=NEAR)
    of_a_family = isinstance(flag, str) and flag.startswith(library.families) and not flag.endswith(".")
    if not nearest and library.families and of_a_family:
        if flag not in _warned:
            _warned.add(flag)
            LOGGER.warning("%s: the flag %r is not known and has no effect here.", name, flag)
        return
    nearest = nearest or difflib.get_close_matches(str(flag), library.known, n=1, cutoff=0.0)
    raise ConfigurationError(
        f"Expected the keys of {name} to be option flags of {library.title}: {', '.join(library.known)}. Received: "
        f"{flag!r}. Nearest: {nearest[0]!r}. Remove or rename the key; docs/options.md says what each flag does here."
    )
