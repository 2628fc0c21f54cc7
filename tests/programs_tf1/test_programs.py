"""Old programs, run as their owners left them, print the output of TensorFlow alone in the place of the IPU."""

from __future__ import annotations

import pytest

from tests.programs_tf1.running import PROGRAMS, Pair

REPLICAS = {"resnet_replicas": 2, "rl_policy": 2}
SLOW = frozenset({"bert_pipeline", "cnn_sharded", "din", "mcmc_annealing", "rl_actor_critic", "vae", "yolo_infer"})
"""The second of each kind, run with --all."""
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "yolo_network")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.explore) if n in SLOW else n for n in NAMES])
def test_programs_train_to_the_numbers_of_tensorflow(name: str) -> None:
    pair = Pair(f"{name}.py", replicas=REPLICAS.get(name, 1))
    assert pair.differences(2e-3) == []
