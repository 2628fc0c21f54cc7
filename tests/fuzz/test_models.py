"""Random Keras 3 models in training, against Keras alone in their own types and in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.exploring import more_seeds
from tests.fuzz.keras_models import RandomModel
from tests.fuzz.models import check, difference

# Keras builds layers in eager mode, in which NumPy warns of float16 that overflow.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

SEEDS, MORE_SEEDS = (2, 10), more_seeds(range(20, 40), 20)


def run(seed: int) -> None:
    random = RandomModel(seed)
    end = check(random)
    assert end == "same" or end.startswith("refused"), f"{random}\n{end}"


@pytest.mark.explore
@pytest.mark.parametrize("seed", SEEDS)
def test_random_models_train_as_in_keras(seed: int) -> None:
    run(seed)


@pytest.mark.explore
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_more_random_models(seed: int) -> None:
    run(seed)


def test_a_seed_gives_the_same_model() -> None:
    one, other = RandomModel(5), RandomModel(5)
    weights = [model.get_weights() for model in (one.model("float32"), other.model("float32"))]
    assert [w.tobytes() for w in weights[0]] == [w.tobytes() for w in weights[1]]
    one.optimizer(), other.optimizer()
    assert str(one) == str(other)
    assert one.x.tobytes() == other.x.tobytes()


def test_wrong_weights_slots_and_counts_are_seen() -> None:
    truth = np.linspace(-1, 1, 7)
    rounded = truth.astype(np.float32).astype(np.float64)
    wrong = rounded + np.eye(7)[3] * 0.01
    infinite = np.where(truth > 0.9, np.inf, rounded)
    assert not difference("float32", "0 kernel", rounded[::1], rounded, truth)
    assert "off by 0.01" in difference("float32", "0 kernel", wrong, rounded, truth)
    assert "not finite" in difference("mixed_float16", "5 momentum", infinite, rounded, truth)
    assert "3.0, not 2.0" in difference("float32", "4 iteration", *map(np.float64, (3, 2, 2)))
