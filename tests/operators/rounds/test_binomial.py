"""Binomial probabilities are those of SciPy's statistics, to the bit: designs are chosen by
them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from meanstream.operators.rounds.binomial import binomial_probability


@pytest.mark.parametrize("chance", [0.0, 1e-9, 0.1, 0.25, 0.5, 0.8, 0.999, 1.0])
@pytest.mark.parametrize("trials", [0, 1, 2, 7, 64, 1000])
def test_probabilities_are_those_of_the_statistics(trials: int, chance: float) -> None:
    ones = np.arange(trials + 1)
    assert (
        binomial_probability(ones, trials, chance).tolist()
        == binom.pmf(ones, trials, chance).tolist()
    )
