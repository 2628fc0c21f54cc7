"""Old programs, run as their owners left them, print the output of TensorFlow alone in the place of the IPU."""

from __future__ import annotations

import pytest

from ipu._internal.checking.command import main
from tests.programs_tf1.running import PROGRAMS, Pair, is_version_1

REPLICAS = {"cosmoflow": 2, "resnet_replicas": 2, "rl_policy": 2}
SLOW = frozenset({"bert_pipeline", "cnn_sharded", "din", "mcmc_annealing", "rl_actor_critic", "vae", "yolo_infer"})
SLOW |= {
    "estimator_warm_start",
    "cosmoflow",
    "cosmoflow_estimator",
    "graph_network",
    "sales_lstm",
    "contrib_sharded",
    "language_lstm",
}
"""The second program of each kind, and programs that take several seconds, run with --all."""
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "yolo_network")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.explore) if n in SLOW else n for n in NAMES])
def test_programs_train_to_the_numbers_of_tensorflow(name: str) -> None:
    pair = Pair(f"{name}.py", replicas=REPLICAS.get(name, 1))
    assert pair.differences(2e-3) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_check_asks_for_changes_where_a_program_is_of_version_1(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that run by plain Python in the test above need no changes; names of version 1 would end the others."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    path = PROGRAMS / f"{name}.py"
    assert main([str(path)]) == is_version_1(path)
