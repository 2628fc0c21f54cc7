"""Random Keras 3 models in training, against Keras alone in their own types and in float64."""

from __future__ import annotations

import pytest

from tests.fuzz.keras_models import RandomModel
from tests.fuzz.models import check

SEEDS, MORE_SEEDS = (2, 10), range(20, 40)


def run(seed: int) -> None:
    random = RandomModel(seed)
    end = check(random)
    assert end == "same" or end.startswith("refused"), f"{random}\n{end}"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_models_train_as_in_keras(seed: int) -> None:
    run(seed)


@pytest.mark.slow
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
