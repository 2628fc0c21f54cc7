"""One chip has one answer: a cost report is the same whatever processor the program is built on."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.workloads import WORKLOADS, Workload
from engine.ir import ConvolutionDimensionNumbers, Module, WindowDimension
from engine.ir.builder import Builder
from engine.machine_code.instruction_sets import LEVELS
from tests.program.programs import PROGRAMS

Given = tuple[str, Module, list[str], dict[int, np.ndarray]]
NEON = ("neoverse-n1", "+neon,+fp-armv8,+fullfp16")
AMX = ("sapphirerapids", LEVELS["x86-64-v4"][1] + ",+avx512bf16,+avx512fp16,+amx-tile,+amx-bf16,+amx-int8")
INSTRUCTION_SETS = {
    "SSE2": (LEVELS["x86-64"], 4),
    "AVX2": (LEVELS["x86-64-v3"], 8),
    "AVX-512": (("znver5", LEVELS["x86-64-v4"][1] + ",+avx512bf16"), 16),  # which multiplies pairs of bfloat16
    "AMX": (AMX, 16),
    "NEON": (NEON, 4),
}
"""LLVM's CPU name and features, and the lanes that these have."""
FORWARD = ConvolutionDimensionNumbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
BY_INPUT = ConvolutionDimensionNumbers(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2))
BY_KERNEL = ConvolutionDimensionNumbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
CHANNELS_FIRST = ConvolutionDimensionNumbers(0, 1, (2, 3), 2, 3, (0, 1), 0, 1, (2, 3))


def layer(batch: int, size: int, features: tuple[int, int], taps: int, kind: str = "f32", groups: int = 1) -> Module:
    """A convolution, and its gradients by the input and by the kernel, of images whose size it keeps."""
    inputs, outputs = features
    b, window = Builder("layer"), (WindowDimension(taps, 1, taps // 2, taps // 2),) * 2
    x, w = b.parameter(kind, (batch, size, size, inputs)), b.parameter(kind, (taps, taps, inputs // groups, outputs))
    dy = b.parameter(kind, (batch, size, size, outputs))
    made = [b.convolution(x, w, window, FORWARD, feature_group_count=groups)]
    if groups == 1:
        reversed_window = (WindowDimension(taps, 1, taps // 2, taps // 2, window_reversal=True),) * 2
        made.append(b.convolution(dy, w, reversed_window, BY_INPUT))
    positions = (WindowDimension(size, 1, taps // 2, taps // 2),) * 2
    made.append(b.convolution(x, dy, positions, BY_KERNEL, batch_group_count=groups))
    return b.module(b.tuple(*made))


def alone(
    x: tuple[int, ...], w: tuple[int, ...], window: WindowDimension, numbers: ConvolutionDimensionNumbers = FORWARD
) -> Module:
    """One convolution."""
    b = Builder("alone")
    made = b.convolution(b.parameter("f32", x), b.parameter("f32", w), (window, window), numbers)
    return b.module(b.tuple(made))


def convolutions() -> dict[str, Module]:
    """Convolutions that processors compute in different ways: few features, groups, strides, dilations, halves."""
    return {
        "5 x 5, 32 to 3": layer(8, 28, (32, 3), 5),
        "5 x 5, 16 to 8": layer(8, 32, (16, 8), 5),
        "3 x 3, 1 to 6": layer(16, 28, (1, 6), 3),
        "3 x 3, 64 to 1": layer(4, 64, (64, 1), 3),
        "3 x 3, 32 to 32": layer(4, 16, (32, 32), 3),
        "1 x 1, 48 to 24": layer(8, 16, (48, 24), 1),
        "groups of 4": layer(4, 16, (32, 32), 3, groups=8),
        "groups of 4, float16": layer(4, 16, (32, 32), 3, "f16", 8),
        "groups to half": layer(4, 17, (32, 16), 3, "bf16", 8),
        "depthwise": layer(4, 28, (32, 32), 3, groups=32),
        "5 x 5, bfloat16 pairs": layer(8, 32, (1, 6), 5, "bf16"),
        "7 x 7, float16": layer(8, 32, (3, 16), 7, "f16"),
        "stride 2": alone((8, 32, 32, 3), (7, 7, 3, 12), WindowDimension(7, 2, 3, 3)),
        "transposed": alone((8, 16, 16, 32), (4, 4, 32, 3), WindowDimension(4, 1, 2, 2, base_dilation=2)),
        "dilated": alone((8, 32, 32, 8), (3, 3, 8, 4), WindowDimension(3, 1, 2, 2, window_dilation=2)),
        "channels first": alone((8, 8, 32, 32), (3, 3, 8, 4), WindowDimension(3, 1, 1, 1), CHANNELS_FIRST),
    }


def assert_one_answer(given: list[Given], folder: Path) -> None:
    """Asserts that each module has the same cost report with every instruction set, each tried in its own process."""
    path = folder / "modules.pickle"
    path.write_bytes(pickle.dumps(given))
    found = {name: _estimates(path, *settings) for name, (settings, _) in INSTRUCTION_SETS.items()}
    assert {name: each["lanes"] for name, each in found.items()} == {n: s[1] for n, s in INSTRUCTION_SETS.items()}
    assert not any(each["compiler"] for each in found.values()), "neither lowering nor the report loads a compiler"
    expected: dict[str, Any] = found["SSE2"]["estimates"]
    assert len(expected) == len(given) and all(each["sets"] for each in expected.values())
    for name, each in found.items():
        for module, figures in each["estimates"].items():
            for kind, value in figures.items():
                assert value == expected[module][kind], f"{module}: {kind} with {name}, beside SSE2"


def _estimates(path: Path, cpu: str, features: str) -> Any:
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, "-m", "tests.profile.estimates", str(path)]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def test_convolutions_and_small_programs_have_one_answer(tmp_path: Path) -> None:
    given: list[Given] = [(n, m, ["variable"] * len(m.entry.parameters), {}) for n, m in convolutions().items()]
    given += [(name, *make(), {}) for name, make in PROGRAMS.items()]
    assert_one_answer(given, tmp_path)


@pytest.mark.explore
@pytest.mark.parametrize("name", [each.name for each in WORKLOADS.values() if each.kind != "latency"])
def test_benchmark_models_have_one_answer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_one_answer([(name, *step_of(WORKLOADS[name], monkeypatch))], tmp_path)


def step_of(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> tuple[Module, list[str], dict[int, np.ndarray]]:
    """The step that a call of `fit` or `predict` passes to the compiler; it is not run."""
    import keras

    from benchmarks import models
    from benchmarks.rivals.keras_fit import dtype_policy, loss_of, scope_of

    class Traced(Exception):
        """Raised to end the call once the step is known."""

    found: list[tuple[Module, list[str], dict[int, np.ndarray]]] = []

    def keep(module: Module, roles: list[str], constants: dict[int, np.ndarray], **_: Any) -> None:
        found.append((module, roles, constants))
        raise Traced

    monkeypatch.setattr("engine.compile.compile_module", keep)
    inputs, labels = workload.data(np.random.default_rng(0), workload.batch)
    with scope_of("ipu"), dtype_policy(workload.policy):
        model = getattr(models, workload.model)(*workload.arguments)
        model.compile(workload.optimizer, loss_of(workload), jit_compile=False)
    with pytest.raises(Traced):
        if workload.kind == "fit":
            model.fit(inputs, labels, workload.batch, verbose=0)
        else:
            model.predict(inputs, workload.batch, verbose=0)
    keras.backend.clear_session()
    return found[0]
